# SPDX-License-Identifier: Apache-2.0
"""A put that ends with an exception: its item is put once or not at all, and no other one suffers.

The memory of an item that is put, or that waits behind a full queue, belongs to the queue: a
put that gives it back gives it to the next item as well.
"""

import gc
import os
import queue
import threading
from collections.abc import Callable
from multiprocessing import util
from types import SimpleNamespace
from typing import Any

import pytest

from processes.kit import PATIENCE
from shmnd import ipc
from shmnd.ipc.queue import parts, queueing

FULL = queueing._LONGEST


class Alarm(BaseException):
    """What a handler of a signal raises."""


class Failing:
    """A function that does what another one does, and raises once where it is `armed`."""

    def __init__(self, real: Callable[..., None], error: type[BaseException], after: bool) -> None:
        self.real = real
        self.error = error
        self.after = after
        self.armed = False

    def __call__(self, *arguments: Any) -> None:
        if self.after or not self.armed:
            self.real(*arguments)
        if self.armed:
            self.armed = False
            raise self.error


def take_all(q: ipc.Queue) -> list[Any]:
    got = []
    while True:
        try:
            got.append(q.get(timeout=1))
        except queue.Empty:
            return got


@pytest.mark.parametrize(
    ("after", "error"),
    [(False, RuntimeError), (True, Alarm)],
    ids=["no room for a thread", "a signal"],
)
def test_items_behind_a_full_queue(
    after: bool, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ipc.Queue() as q:
        for number in range(FULL):
            q.put(number)
        start = Failing(threading.Thread.start, error, after)
        start.armed = True
        monkeypatch.setattr(threading.Thread, "start", lambda thread: start(thread))
        with pytest.raises(error):
            q.put("not put")
        for number in range(FULL, FULL + 9):
            q.put(number)
        assert take_all(q) == list(range(FULL + 9))
        q.close()
        q.join_thread()


def test_a_queue_that_was_full_leaves_nothing_for_the_end_of_the_process() -> None:
    """Each time that one was, an entry stayed in the list of what runs then."""
    before = set(vars(util)["_finalizer_registry"])
    with ipc.Queue() as q:
        for number in range(FULL + 1):
            q.put(number)
        assert len(take_all(q)) == FULL + 1
        q.close()
        q.join_thread()
    gc.collect()
    assert set(vars(util)["_finalizer_registry"]) <= before


@pytest.mark.parametrize("limit", [0, 2])
def test_an_interrupted_wake_up_leaves_the_item(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = Failing(parts.ringer().ring, Alarm, after=True)
    monkeypatch.setattr(parts, "ringer", lambda: SimpleNamespace(ring=ring))
    with ipc.Queue(limit) as q:
        assert q.fileno() >= 0  # whose owner is rung
        with pytest.raises(queue.Empty):
            q.get_nowait()
        put: Callable[[Any], None] = q.put
        if limit:  # as where another process takes the room that was there
            put = lambda item: q._put_later(q._core.pack(item), True, PATIENCE, None)  # noqa: E731
        ring.armed = True
        with pytest.raises(Alarm):
            put("first")
        q.put("second")
        assert take_all(q) == ["first", "second"]


def test_an_interrupted_start_leaves_the_descriptors_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own was closed twice, the second time as that of the next owner of the number."""
    ring = Failing(parts.ringer().ring, Alarm, after=True)
    monkeypatch.setattr(parts, "ringer", lambda: SimpleNamespace(ring=ring))
    ring.armed = True
    with pytest.raises(Alarm):
        ipc.Queue()


def test_a_forked_child_sends_an_item_put_into_a_full_queue() -> None:
    """The thread that sends for the parent is not there in the child, nor are its locks free."""
    with ipc.Queue() as q:
        for number in range(FULL + 1):
            q.put(number)
        with q._feeder._lock:  # as the thread has it
            child = os.fork()
        if child == 0:
            q.put("child's")
            q.close()
            q.join_thread()
            os._exit(0)
        got = [q.get(timeout=PATIENCE) for _ in range(FULL + 2)]
        assert os.waitpid(child, 0)[1] == 0
        assert got.count("child's") == 1
        got.remove("child's")
        assert got == list(range(FULL + 1))
        q.close()
        q.join_thread()
