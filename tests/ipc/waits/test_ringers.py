# SPDX-License-Identifier: Apache-2.0
"""The socket that rings bells: one for all objects of a process, from the first to the last."""

import select
import threading
import weakref

import pytest

from shmnd.ipc.common import ringer as module
from shmnd.ipc.common.ringing import Bell

PATIENCE = 30.0


def test_an_object_that_is_made_while_the_last_one_ends_rings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ringer that ends in one thread is not found by another one."""
    ends, go_ahead = threading.Event(), threading.Event()
    is_still = module.is_still

    def slow(fd: int, file: tuple[int, int]) -> bool:
        ends.set()
        assert go_ahead.wait(PATIENCE)
        return is_still(fd, file)

    monkeypatch.setattr(module, "is_still", slow)
    monkeypatch.setattr(module, "_ringers", weakref.WeakValueDictionary())
    last = [module.ringer()]
    thread = threading.Thread(target=last.clear)
    thread.start()
    try:
        assert ends.wait(PATIENCE)
        bell = Bell()
    finally:
        go_ahead.set()
        thread.join(PATIENCE)
    bell.ring()
    try:
        assert select.select([bell.fd], [], [], 0)[0]
    finally:
        bell.close()
