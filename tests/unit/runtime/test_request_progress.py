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


def test_a_dropped_queue_leaves_no_entry(progress: RequestProgress) -> None:
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
    queue: Any = Queue()
    begun = []
    for each in range(20):  # milliseconds
        now = 10**12 + each * 10**6
        if progress.is_round_due(now):
            begun.append(each)
            progress.poll_others(queue, now)
    assert begun == [0, 5, 10, 15]


def test_another_queue_polls_the_one_that_began_a_round(progress: RequestProgress) -> None:
    """That one may be a queue to which the program only posts."""
    first: Any = Queue()
    second: Any = Queue()
    for queue in first, second:
        queue._busy, queue.polled = True, 0
        queue._poll = lambda each=queue: setattr(each, "polled", each.polled + 1)
        progress.add(queue)
    progress.poll_others(first, 10**12)
    progress.poll_left_out(first)
    assert (first.polled, second.polled) == (0, 1)
    for _ in range(3):
        assert not progress.is_round_due(10**12 + 1)
        progress.poll_left_out(second)
    assert (first.polled, second.polled) == (1, 1)
