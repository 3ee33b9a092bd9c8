# SPDX-License-Identifier: Apache-2.0
"""How long until a sleeping task of an event loop has a message? A ping-pong between two loops."""

import asyncio
from collections.abc import Callable, Coroutine

from ..measure.reading import Stamps
from .lane import Lane, check
from .latency import clock_ns, due_times, reap, rounds

new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
"""What makes the event loops; None: asyncio itself."""


def pingpong(lane: Lane, count: int, first: bool, stamps: Stamps | None) -> None:
    """Send and await an answer, one round more than `count`; both ends sleep meanwhile."""
    _run(_begin(lane, count, stamps) if first else _answer(lane, count + 1))


def paced_pingpong(lane: Lane, count: int, rate: float, times: Stamps) -> None:
    """Run a ping-pong whose rounds begin at a rate, when the other side has long been asleep."""
    _run(_begin_paced(lane, count, rate, times))


def _run(main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


async def _begin(lane: Lane, count: int, stamps: Stamps | None) -> None:
    for _ in rounds(count, stamps):
        await _turn(lane)
    await _turn(lane)


async def _begin_paced(lane: Lane, count: int, rate: float, times: Stamps) -> None:
    for place, due in enumerate(due_times(count + 1, rate)):
        await _turn(lane)
        times[place] = clock_ns() - due


async def _turn(lane: Lane) -> None:
    lane.send(lane.outgoing)
    reap(lane, 1)
    await _arrival(lane)


async def _answer(lane: Lane, count: int) -> None:
    for _ in range(count):
        await _arrival(lane)
        lane.send(lane.outgoing)
        reap(lane, 1)


async def _arrival(lane: Lane) -> None:
    """Take one Receive and post it again; arm first and poll then, so that none is missed."""
    notification = lane.receive_cq.notify()
    results = lane.receive_cq.get_results(1)
    while not results:
        await notification
        results = lane.receive_cq.get_results(1)
        if not results:
            notification = lane.receive_cq.notify()
            results = lane.receive_cq.get_results(1)
    check(results)
    lane.qp.receive(lane.incoming)
