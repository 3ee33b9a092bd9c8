# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises while an end is opened, and nothing of the end stays."""

import functools
import gc
import itertools
import sys
import time
from typing import Any, ClassVar

import numpy as np
import pytest

from interrupting import Alarm, interrupted
from shmnd import ipc
from shmnd.ipc.common.namespace_adapter import Attachment, NamespaceAdapter

PATIENCE = 20.0
WHERE = ("announcements.py", "subscriber.py", "client.py", "records.py")


def _opens(path: str) -> bool:
    return path.endswith(WHERE)


def _open(subs: list[ipc.Subscriber]) -> None:
    subs += [ipc.Subscriber("t", overflow="block", buffer=2)]


def test_a_publisher_does_not_wait_for_a_subscriber_that_was_never_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors
    with ipc.Publisher("t", "i8", max_subscribers=2) as pub:  # seats are taken back
        for at in itertools.count():
            subs: list[ipc.Subscriber] = []
            was = interrupted(at, functools.partial(_open, subs), _opens, Alarm, made=True)
            while subs:
                subs.pop().close()
            if at % 8 == 0:
                gc.collect()
            end = time.monotonic() + PATIENCE
            while pub.subscribers:
                assert time.monotonic() < end, f"interrupted at {at}"
            for number in range(4):
                pub.send(np.int64(number), timeout=PATIENCE)
            if not was:
                break
    assert at > 20


@pytest.mark.parametrize("kind", [ipc.Publisher, ipc.Subscriber])
def test_the_adapter_of_an_end_that_was_never_opened_is_closed(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors

    def in_adapters(path: str) -> bool:
        return path.endswith("namespace_adapter.py")

    made: list[Any] = []
    for at in itertools.count():
        was = interrupted(at, lambda: made.append(kind("t")), in_adapters, Alarm, made=True)
        while made:
            made.pop().close()
        assert not NamespaceAdapter._all, f"interrupted at {at}"
        if not was:
            break
    assert at > 5


def test_an_attachment_that_was_interrupted_gives_its_adapter_back() -> None:
    class Shared:
        users: ClassVar[set[int]] = set()

        def take(self, user: object) -> None:
            self.users.add(id(user))
            raise Alarm

        def give_back(self, user: object) -> None:
            self.users.discard(id(user))

    class Part:
        def close(self) -> None:
            pass

    made: Any = Attachment
    with pytest.raises(Alarm):
        made(Shared(), Part(), Part())
    gc.collect()
    assert not Shared.users
