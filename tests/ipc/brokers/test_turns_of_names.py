# SPDX-License-Identifier: Apache-2.0
"""Many processes that open one name at once: each has its turn, and none holds up all others."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import shmnd
from shmnd import ipc
from shmnd.directory import Directory
from shmnd.ipc.common.processes import own_process
from shmnd.ipc.event.notifying import EVENT
from shmnd.ipc.naming import shared_name
from shmnd.status import NdError

BEFORE = 8
PATIENCE = 1.5


@contextmanager
def others(name: str) -> Iterator[list[Any]]:
    """Have others open a name: their records, first that of the one whose turn it is."""
    with ExitStack() as stack:
        directories = [Directory(stack.enter_context(shmnd.open_adapter())) for _ in range(BEFORE)]
        door, by = f"{EVENT}.door", {"process": own_process()._asdict()}
        yield [
            stack.enter_context(each.announce(door, name, {"number": number + 1} | by))
            for number, each in enumerate(directories)
        ]


def test_one_with_many_before_it_waits_for_all_and_asks_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time-out is for one that holds up all others, not for all of them together."""
    monkeypatch.setattr(shared_name, "_PATIENCE", PATIENCE)
    before: list[int] = []
    pauses: list[tuple[int, float]] = []

    class Counting(Directory):
        def find(self, kind: str, name: str = "") -> Any:
            found = super().find(kind, name)
            before.append(len(found) - 1)  # it has a record of its own
            return found

    def sleep(seconds: float) -> None:
        pauses.append((before[-1], seconds))
        time.sleep(seconds)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(shared_name, "Directory", Counting)
    monkeypatch.setattr(shared_name, "time", clock)
    name = f"event-{uuid.uuid4().hex}"
    with others(name) as records:

        def leave() -> None:
            for record in records:
                time.sleep(PATIENCE / 6)
                record.close()

        leaving = threading.Thread(target=leave)
        leaving.start()
        try:
            ipc.Listener(name).close()
        finally:
            leaving.join()
    assert pauses[0][0] == BEFORE
    assert all(seconds >= 0.0005 * count for count, seconds in pauses)


def test_one_that_holds_up_all_others_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_name, "_PATIENCE", 0.3)
    name = f"event-{uuid.uuid4().hex}"
    with others(name), pytest.raises(NdError, match="has been opening"):
        ipc.Listener(name)
