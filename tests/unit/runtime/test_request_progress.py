# SPDX-License-Identifier: Apache-2.0
"""The queues whose requests a sleeping thread carries on: the entries of one end with it."""

import weakref
from typing import Any

import pytest

from shmnd.runtime.request_progress import RequestProgress
from shmnd.runtime.waiting import WaitSet


class Queue:
    """A completion queue that is not busy."""

    _announcing = False
    _busy = False


@pytest.fixture
def progress() -> RequestProgress:
    return RequestProgress(WaitSet())


def known(progress: RequestProgress) -> list[Any]:
    """Return all entries of queues."""
    return [*progress._queues, *progress._watched, *progress._seen]


def watch(progress: RequestProgress, queue: Queue) -> None:
    """Enter a queue as a sleeping thread does."""
    progress._watched.add(id(queue))
    progress._seen[id(queue)] = 1, 0.0


def test_nothing_is_known_of_a_queue_that_is_gone(progress: RequestProgress) -> None:
    queue: Any = Queue()
    progress.add(queue)
    watch(progress, queue)
    del queue
    assert not known(progress)


def test_the_next_poll_drops_entries_of_an_interrupted_callback(progress: RequestProgress) -> None:
    queue: Any = Queue()
    progress.add(queue)
    watch(progress, queue)
    # As when a handler raises in the callback: the interpreter drops it, with the exception.
    progress._queues[id(queue)] = weakref.ref(queue)
    del queue
    progress.poll()
    assert not known(progress)


def test_a_queue_is_not_taken_for_one_that_had_its_place(progress: RequestProgress) -> None:
    queue: Any = Queue()
    watch(progress, queue)
    progress.add(queue)
    assert known(progress) == [id(queue)]


def test_a_round_begins_once_for_all_queues(progress: RequestProgress) -> None:
    moments = range(20)  # milliseconds
    begun = [each for each in moments if progress.begins_round(10**12 + each * 10**6)]
    assert begun == [0, 5, 10, 15]
