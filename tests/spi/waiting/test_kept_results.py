# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises after a call: a loop in compiled code has lost no result."""

import ctypes
import functools
import itertools
import operator
import signal
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import shmnd
from interrupting import Interrupted

MANY = 8


@pytest.fixture
def queue() -> Iterator[shmnd.CompletionQueue]:
    """A queue with some results, and a handler that raises."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    with shmnd.open_adapter() as adapter:
        made = adapter.create_completion_queue(64)
        pair = adapter.create_queue_pair(made, made, receive_depth=MANY)
        for number in range(MANY):
            pair.receive(None, context=number)
        pair.flush()
        yield made
    signal.signal(signal.SIGUSR1, before)


def signalled(call: Callable[[], Any]) -> Callable[[], Any]:
    """Make a compiled function: a signal comes, and then the call.

    The interpreter can run the handler only after it has returned.
    """
    kick = functools.partial(getattr(ctypes.PyDLL(None), "raise"), signal.SIGUSR1)
    calls: Iterator[Callable[[], Any]] = itertools.cycle([kick, call])
    both: Iterator[Any] = map(operator.methodcaller("__call__"), calls)
    return itertools.filterfalse(functools.partial(operator.eq, 0), both).__next__


@pytest.mark.parametrize("waits", [False, True], ids=["polls", "waits"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "python"])
def test_what_a_loop_in_compiled_code_took_is_kept(
    compiled: bool, waits: bool, queue: shmnd.CompletionQueue
) -> None:
    taken = deque(queue.get_results(1))  # its first call runs functions of Python, too
    take = (
        functools.partial(queue.wait, 2, 10) if waits else functools.partial(queue.get_results, 2)
    )
    call = signalled(take)

    def take_all() -> None:
        if compiled and waits:
            taken.extend(itertools.chain.from_iterable(itertools.islice(iter(call, None), 1)))
        elif compiled:
            taken.extend(itertools.chain.from_iterable(iter(call, [])))
        else:
            while got := call():
                taken.extend(got)

    with pytest.raises(Interrupted):
        take_all()
    found = [each.request_context for each in (*taken, *queue.get_results())]
    if compiled:
        assert found == list(range(MANY))
    else:
        assert found == [0, *range(3, MANY)], "else this test shows nothing"
