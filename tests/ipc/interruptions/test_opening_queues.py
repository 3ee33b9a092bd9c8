# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises while a queue is made: its descriptor is closed, and once."""

import gc
import os
import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from census import open_files
from interrupting import Alarm
from shmnd import ipc
from shmnd.ipc.queue import parts

INTERRUPTIONS = 300
LONGEST = 0.0003
"""Seconds within which a queue is made, or not much later."""


@pytest.fixture
def alarms() -> Iterator[None]:
    def ring(number: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _queues() -> int:
    """Return how many descriptors of queues this process has."""
    return sum("shmnd-queue" in path for path in open_files())


def test_a_queue_that_was_never_made_leaves_no_descriptor(
    alarms: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.unraisablehook", bool)  # for exceptions in destructors
    chosen = random.Random(1)
    before = _queues()
    interrupted = 0
    while interrupted < INTERRUPTIONS:
        try:
            signal.setitimer(signal.ITIMER_REAL, chosen.uniform(LONGEST / 100, LONGEST))
            # An OSError was of a descriptor that was closed twice.
            made = ipc.Queue(4)
            signal.setitimer(signal.ITIMER_REAL, 0)
            made.close()
        except Alarm:
            interrupted += 1
        made = None  # type: ignore[assignment]
    signal.setitimer(signal.ITIMER_REAL, 0)
    gc.collect()
    assert _queues() == before


def test_threads_that_open_one_queue_have_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of a process have the same locks: each took the other's page for its own."""
    name = f"opened-{os.getpid()}"
    found: list[ipc.Queue[Any]] = []
    other = threading.Thread(target=lambda: found.append(ipc.Queue(name=name)))
    make = parts.QueueCore

    def slowly(*args: Any) -> Any:
        made = make(*args)
        if not other.ident:
            other.start()
            other.join(1.0)  # it waits for this one; without a wait it would have a part by now
        return made

    monkeypatch.setattr(parts, "QueueCore", slowly)
    with ipc.Queue(name=name) as queue:
        other.join(20)
        (second,) = found
        assert second._core is queue._core
        second.close()
