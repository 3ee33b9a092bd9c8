# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises while a task is queued leaves no thread asleep that has one."""

import itertools
import time
from concurrent.futures import BrokenExecutor, Future
from typing import Any

import interrupting
from shmnd.mpi import MPI, futures
from shmnd.mpi.futures.workers import Ranks, Team

SECONDS = 30.0
"""For a thread that is awake, on a machine with other work."""


def _is_queued(ranks: Ranks, future: Future[Any]) -> bool:
    return any(task is not None and task[1] is future for task in list(ranks._tasks))


def test_no_task_stays_queued_for_a_thread_that_sleeps() -> None:
    ranks = Ranks(MPI.COMM_SELF, [])  # a pool whose workers have died ends each task at once
    team = Team(ranks)
    begun: Future[Any] = team.submit(abs, (-1,), {})
    assert isinstance(begun.exception(SECONDS), BrokenExecutor)
    places = 0
    for at in itertools.count():
        future: Future[Any] = Future()
        task = team, future, (abs, (-1,), {})
        if not interrupting.interrupted(
            at, lambda task=task: ranks.put(task), interrupting.inside(futures)
        ):
            break
        places += 1
        end = time.monotonic() + SECONDS
        while _is_queued(ranks, future):
            assert time.monotonic() < end, f"queued for ever: place {at}"
            time.sleep(0.001)
    assert places >= 2
    assert isinstance(future.exception(SECONDS), BrokenExecutor)
    ranks.close()
