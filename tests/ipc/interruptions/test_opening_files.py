# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises behind each call while an end is opened: no file of it stays."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

from census import open_files
from interrupting import Alarm
from shmnd import ipc
from stepping import stepped

OPENS = (
    "board.py", "cards.py", "client.py", "members.py", "notifying.py", "owned.pyx", "queueing.py",
    "server.py", "shared_name.py", "writer.py",
)  # fmt: skip
FILES = ("memfd:shmnd-name", "memfd:shmnd-room", "memfd:shmnd-queue", "memfd:shmnd-board")
ENDS: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
    "event": (lambda: ipc.Listener("n"), None),
    "event of others": (lambda: ipc.Listener("n"), lambda: ipc.Notifier("n")),
    "queue": (lambda: ipc.Queue(4, name="n"), None),
    "service": (lambda: ipc.Client("n"), None),
    "service of others": (lambda: ipc.Client("n"), lambda: ipc.Server("n")),
    "blackboard": (lambda: ipc.Blackboard("n"), None),
    "blackboard of others": (lambda: ipc.BlackboardReader("n"), lambda: ipc.Blackboard("n")),
}
"""The end that is opened, and the one that has the name before."""


def _within(path: str) -> bool:
    return "ipc" in path and path.endswith(OPENS) and "tests" not in path


def _files() -> list[str]:
    """Return the files of names that this process has open."""
    gc.collect()
    return [path for path in open_files() if any(each in path for each in FILES)]


@pytest.mark.parametrize("kind", ENDS)
def test_an_end_that_was_never_opened_leaves_no_file(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", bool)  # for exceptions in destructors
    make, before = ENDS[kind]
    other = before() if before else None
    files, at, place = _files(), 0, "none yet"
    while place:
        made: list[Any] = []
        place = stepped(at, lambda made=made: made.append(make()), _within, Alarm)
        while made:
            made.pop().close()
        assert _files() == files, f"behind call {at}: {place}"
        at += 1
    assert at > 40
    if other is not None:
        other.close()
