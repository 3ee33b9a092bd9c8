# SPDX-License-Identifier: Apache-2.0
"""Items of a JoinableQueue that one process takes, and another one reports as done.

Workers take, a collector reports, and workers end or are killed meanwhile. `multiprocessing` counts
reports alone, of any process. Items that died with a worker count as done here, but not those
that the collector has reported, or reports later.
"""

import multiprocessing
import os
import signal
import threading
from typing import Any

import pytest

from shmnd import ipc

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0


def take(q: Any, taken: Any, count: int, end: str) -> None:
    for _ in range(count):
        taken.put(q.get(timeout=PATIENCE))
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def worker(q: Any, count: int, end: str) -> None:
    """Have a process take so many items, and end."""
    taken = FORK.SimpleQueue()
    child = FORK.Process(target=take, args=(q, taken, count, end))
    child.start()
    child.join(PATIENCE)
    assert not child.is_alive()
    assert len([taken.get() for _ in range(count)]) == count


def report(q: Any, count: int) -> None:
    for _ in range(count):
        q.task_done()


def join_waits_for_the_next_item(q: Any) -> None:
    """Check that the counts are as if nothing had happened."""
    q.put("next")
    assert q._core.unfinished() == 1
    done = threading.Event()
    waiter = threading.Thread(target=lambda: (q.join(), done.set()), daemon=True)
    waiter.start()
    assert q.get(timeout=PATIENCE) == "next"
    assert not done.wait(0.3)
    q.task_done()
    assert done.wait(PATIENCE)
    waiter.join(PATIENCE)
    with pytest.raises(ValueError, match="too many times"):
        q.task_done()


@pytest.mark.parametrize("end", ["ended", "killed"])
def test_reports_for_items_that_workers_took_are_counted_once(end: str) -> None:
    with ipc.JoinableQueue() as q:
        for _ in range(3):  # the next worker has the number of the one before
            for item in range(4):
                q.put(item)
            worker(q, 4, end)
            report(q, 4)
            q._core.reap()
            assert q._core.unfinished() == 0
        join_waits_for_the_next_item(q)


@pytest.mark.parametrize("reported", range(5))
def test_items_of_a_dead_worker_may_be_reported(reported: int) -> None:
    with ipc.JoinableQueue() as q:
        for item in range(4):
            q.put(item)
        worker(q, 4, "killed")
        q.join()  # does not wait for what died
        if reported == 4:
            report(q, 4)
            join_waits_for_the_next_item(q)
            return
        report(q, reported)
        assert q._core.unfinished() == 0
        q.put("next")
        assert q._core.unfinished() == 1


def test_a_collector_that_dies_has_reported() -> None:
    with ipc.JoinableQueue() as q:
        for item in range(4):
            q.put(item)
        assert [q.get(timeout=PATIENCE) for _ in range(4)] == [0, 1, 2, 3]
        collector = FORK.Process(target=report, args=(q, 4))
        collector.start()
        collector.join(PATIENCE)
        assert collector.exitcode == 0
        q.join()
        q._core.reap()
        assert q._core.unfinished() == 0
        join_waits_for_the_next_item(q)
