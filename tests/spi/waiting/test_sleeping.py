# SPDX-License-Identifier: Apache-2.0
"""A thread or task that sleeps for a completion: what happens from the ring to its result.

No wait here ends by itself before the test does, so a lost wake-up is a failure.
"""

import asyncio
import sys
import threading
from typing import Any

import pytest

from shmnd import Status
from spi.harness import WAIT, wait_until
from spi.pair import Pair
from spi.remote import Ends


@pytest.fixture
def pair(ends: Ends) -> Pair:
    return ends.pair("one").connect()


def when_asleep(queue: Any, act: Any) -> threading.Thread:
    """Do something once a thread sleeps at the queue."""

    def run() -> None:
        wait_until(lambda: queue._attended, "a thread sleeps")
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_wake_up_runs_few_functions_of_python(pair: Pair) -> None:
    end = pair.active
    queue = end.cq
    queue.spin = 0.0
    end.qp.receive(None, "woken")
    calls: list[str] = []

    def count(frame: Any, event: str, arg: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    sender = when_asleep(queue, lambda: pair.passive.qp.send(None))
    sys.setprofile(count)
    try:
        results = queue.wait(1, WAIT)
    finally:
        sys.setprofile(None)
    sender.join(WAIT)
    assert [result.request_context for result in results] == ["woken"]
    # The requests in progress of another queue, the Send's, may be polled too.
    assert len(calls) <= 25, calls


def test_threads_sleep_at_queues_of_their_own(ends: Ends) -> None:
    """One of them sleeps in the kernel; when it leaves, or is woken for others, they are woken."""
    pairs = [ends.pair("one").connect() for _ in range(3)]
    rounds = 150
    taken = [0] * len(pairs)

    def serve(place: int) -> None:
        end = pairs[place].passive
        end.cq.spin = 0.0
        for _ in range(rounds):
            end.qp.receive(None)
            pairs[place].active.qp.send(None)
            results = []
            while len(results) < 1:
                results += end.cq.wait(1, 2 * WAIT)
            taken[place] += 1
            pairs[place].active.cq.get_results()

    threads = [threading.Thread(target=serve, args=(place,)) for place in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * WAIT)
    assert taken == [rounds] * len(pairs)


def test_a_thread_that_sleeps_elsewhere_is_woken_by_what_the_first_one_finds(ends: Ends) -> None:
    """The leader takes the ring of both; its wait continues, the other one's ends."""
    first, second = ends.pair("one").connect(), ends.pair("one").connect()
    for pair in (first, second):
        pair.passive.cq.spin = 0.0
        pair.passive.qp.receive(None)
    results: list[Any] = []

    def leader() -> None:
        results.append(("first", first.passive.cq.wait(1, 2 * WAIT)))

    def follower() -> None:
        results.append(("second", second.passive.cq.wait(1, 2 * WAIT)))

    threads = [threading.Thread(target=leader), threading.Thread(target=follower)]
    threads[0].start()
    wait_until(lambda: first.passive.cq._attended, "the first sleeps")
    threads[1].start()
    wait_until(lambda: second.passive.cq._attended, "the second sleeps")
    second.active.qp.send(None)
    threads[1].join(WAIT)
    assert [name for name, _ in results] == ["second"]
    first.active.qp.send(None)
    threads[0].join(WAIT)
    assert [name for name, _ in results] == ["second", "first"]
    assert all(got[0].status is Status.SUCCESS for _, got in results)


def test_a_task_is_resumed_by_the_look_that_ended_what_it_awaits(pair: Pair) -> None:
    """Without a write to the loop's own pipe, which would take one more turn of the loop."""
    end = pair.active
    calls: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        plain = loop.call_soon_threadsafe

        def counted(*args: Any) -> Any:
            calls.append(args)
            return plain(*args)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        for number in range(5):
            end.qp.receive(None, number)
            told = end.cq.notify()
            loop.call_later(0.002, pair.passive.qp.send, None)
            await told
            assert [result.request_context for result in end.cq.get_results()] == [number]

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert calls == []
