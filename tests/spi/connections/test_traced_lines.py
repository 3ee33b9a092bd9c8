# SPDX-License-Identifier: Apache-2.0
"""A trace function that raises, as a debugger that quits does, before any line of a function.

Handlers of signals run at fewer places. The call that it ends is lost, and those that follow work.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import shmnd
from shmnd.broker.posts import Posts
from shmnd.runtime.broker.exchange import BrokerExchange
from spi.harness import WAIT

FUNCTIONS: tuple[Any, ...] = (
    BrokerExchange._intake,
    BrokerExchange._sort_all,
    BrokerExchange._sort,
    Posts.flush,
)


class Quit(Exception):
    """What the trace function raises."""


def quits(at: int, function: Callable[[], object], traced: Any) -> bool:
    """Call a function, and raise before the `at`-th line of the traced one; return whether it has
    so many.
    """
    left = at

    def trace(frame: FrameType, event: str, what: object) -> Any:
        nonlocal left
        if frame.f_code is not traced.__code__:
            return trace if event == "call" else None
        if event == "line":
            left -= 1
            if left == -1:
                raise Quit
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except Quit:
        pass
    finally:
        sys.settrace(before)
    return left < 0


def connect(adapters: tuple[shmnd.Adapter, shmnd.Adapter]) -> None:
    """Make a connection, and end it."""
    active, passive = adapters
    with (
        active.create_connector() as caller,
        passive.create_connector() as called,
        passive.create_listener() as listener,
        active.create_completion_queue(1) as queue,
        passive.create_completion_queue(1) as other_queue,
        active.create_queue_pair(queue, queue) as pair,
        passive.create_queue_pair(other_queue, other_queue) as other_pair,
    ):
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        request = listener.get_connection_request(called)
        connecting = caller.connect(pair, listener.get_local_address())
        request.result(WAIT)
        accepting = called.accept(other_pair)
        connecting.result(WAIT)
        caller.complete_connect().result(WAIT)
        accepting.result(WAIT)


@pytest.mark.parametrize("traced", FUNCTIONS, ids=lambda each: each.__name__)
def test_a_connection_is_made_after_a_trace_function_has_raised(
    adapters: tuple[shmnd.Adapter, shmnd.Adapter], traced: Any
) -> None:
    connect(adapters)
    at = 0
    while quits(at, lambda: connect(adapters), traced):
        with ThreadPoolExecutor(1) as pool:  # a lock that this thread has keeps another one out
            pool.submit(connect, adapters).result(WAIT)
        at += 1
    assert at > 5, "there were lines to raise at"
