# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises behind any call: a loop in compiled code has lost no result."""

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator

import pytest

import shmnd
from interrupting import Interrupted, interrupted

MANY = 8


@pytest.fixture
def completed() -> Iterator[Callable[[], shmnd.CompletionQueue]]:
    """Make a queue with some results."""
    with shmnd.open_adapter() as adapter:

        def make() -> shmnd.CompletionQueue:
            queue = adapter.create_completion_queue(64)
            pair = adapter.create_queue_pair(queue, queue, receive_depth=MANY)
            for number in range(MANY):
                pair.receive(None, context=number)
            pair.flush()
            return queue

        yield make


@pytest.mark.parametrize("waits", [False, True], ids=["polls", "waits"])
def test_what_a_loop_in_compiled_code_took_is_kept(
    waits: bool, completed: Callable[[], shmnd.CompletionQueue]
) -> None:
    for at in itertools.count():
        queue = completed()
        taken: deque[shmnd.Result] = deque()

        def take(queue: shmnd.CompletionQueue = queue, taken: deque[shmnd.Result] = taken) -> None:
            if waits:
                waited = iter(functools.partial(queue.wait, 64, 10), None)
                taken.extend(itertools.chain.from_iterable(itertools.islice(waited, 1)))
            else:
                polled = iter(functools.partial(queue.get_results, 2), [])
                taken.extend(itertools.chain.from_iterable(polled))

        came = interrupted(at, take, lambda path: path == __file__, Interrupted)
        found = [each.request_context for each in (*taken, *queue.get_results())]
        assert found == list(range(MANY)), f"interrupted at {at}"
        if not came:
            break
    assert at > 3
