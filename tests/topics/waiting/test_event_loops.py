# SPDX-License-Identifier: Apache-2.0
"""Publishers in event loops: other tasks run while they wait for subscribers and for room."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from shmnd import ipc

PATIENCE = 20.0


async def _ticks(count: list[int]) -> None:
    while True:
        count[0] += 1
        await asyncio.sleep(0.001)


def test_other_tasks_run_while_a_publisher_waits_for_room(name: str) -> None:
    async def run() -> None:
        with (
            ipc.Publisher(name, "i8") as pub,
            ipc.Subscriber(name, overflow="block", buffer=2) as sub,
        ):
            await pub.await_subscribers(timeout=PATIENCE)
            for value in range(2):
                assert await pub.asend(np.full(100, value), timeout=PATIENCE) == value
            count = [0]
            ticking = asyncio.ensure_future(_ticks(count))
            sending = asyncio.ensure_future(pub.asend(np.full(100, 2), timeout=PATIENCE))
            while count[0] < 20:
                await asyncio.sleep(0.001)
            assert not sending.done()
            received = [(await sub.areceive(PATIENCE)).array[0] for _ in range(3)]
            assert received == [0, 1, 2]
            assert await sending == 2
            ticking.cancel()

    asyncio.run(run())


def test_a_wait_for_room_in_a_loop_ends_in_time_and_names_the_slow_one(name: str) -> None:
    async def run() -> None:
        with (
            ipc.Publisher(name, "i8") as pub,
            ipc.Subscriber(name, overflow="block", buffer=1) as sub,
        ):
            await pub.await_subscribers(timeout=PATIENCE)
            await pub.await_room()
            pub.send([1])
            for wait in (pub.await_room(timeout=0.01), pub.asend([2], timeout=0.01)):
                with pytest.raises(TimeoutError, match="has no room"):
                    await wait
            sub.receive(PATIENCE).release()
            await pub.await_room(timeout=PATIENCE)
            with pub.loan(1) as loan:
                loan.array[:] = 3
                assert loan.send(timeout=0) == 1

    asyncio.run(run())


def test_a_subscriber_that_closes_ends_a_wait_for_its_room(name: str) -> None:
    async def run() -> None:
        with ipc.Publisher(name, "i8") as pub:
            sub = ipc.Subscriber(name, overflow="block", buffer=1)
            await pub.await_subscribers(timeout=PATIENCE)
            pub.send([1])
            sending = asyncio.ensure_future(pub.asend([2], timeout=PATIENCE))
            await asyncio.sleep(0.01)
            sub.close()
            assert await sending == 1

    asyncio.run(run())


def test_a_wait_in_a_loop_ends_when_the_publisher_is_closed(name: str) -> None:
    async def run() -> None:
        pub = ipc.Publisher(name, "i8")
        with ipc.Subscriber(name, overflow="block", buffer=1):
            await pub.await_subscribers(timeout=PATIENCE)
            pub.send([1])
            waits = [
                asyncio.ensure_future(each)
                for each in (pub.asend([2]), pub.await_room(), pub.await_subscribers(2))
            ]
            await asyncio.sleep(0.01)
            pub.close()
            for each in waits:
                with pytest.raises(ipc.Closed):
                    await asyncio.wait_for(each, PATIENCE)

    asyncio.run(run())


def test_a_wait_for_subscribers_in_a_loop_ends_in_time(name: str) -> None:
    async def run() -> None:
        with ipc.Publisher(name, "i8") as pub:
            with pytest.raises(TimeoutError, match=r"0 subscribers after 0\.01 s, 1 wanted"):
                await pub.await_subscribers(timeout=0.01)
            waiting = asyncio.ensure_future(pub.await_subscribers(timeout=PATIENCE))
            await asyncio.sleep(0.01)
            with ipc.Subscriber(name):
                await waiting

    asyncio.run(run())


def test_what_on_slow_raises_after_a_sample_does_not_send_it_again(name: str) -> None:
    """It may be a TimeoutError, also of a `send` of this publisher, which has no room by then."""

    async def run(report: Callable[[ipc.Publisher], object]) -> None:
        with (
            ipc.Publisher(name, "i8") as pub,
            ipc.Subscriber(name, overflow="block", buffer=1) as sub,
        ):
            await pub.await_subscribers(timeout=PATIENCE)
            await asyncio.sleep(0.02)  # the next send searches for slow subscribers
            pub.on_slow = lambda slow: report(pub)
            with pytest.raises(TimeoutError, match=r"raised|Publisher\.send: "):
                await pub.asend([1], timeout=0.2)
            pub.on_slow = None
            assert sub.receive(PATIENCE).value == 1
            assert sub.try_receive() is None
            assert await pub.asend([2], timeout=PATIENCE) == 1

    def raised(pub: ipc.Publisher) -> None:
        raise TimeoutError("raised")

    asyncio.run(run(raised))
    asyncio.run(run(lambda pub: pub.send([9], None, 0)))


def test_room_that_another_thread_took_for_a_moment_is_no_timeout(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        with (
            ipc.Publisher(name, "i8") as pub,
            ipc.Subscriber(name, overflow="block", buffer=1) as sub,
        ):
            await pub.await_subscribers(timeout=PATIENCE)
            no_room = pub._no_room

            def refused(timeout: float | None, call: str) -> TimeoutError:
                """Have the subscriber read between the refusal and the next step."""
                found = no_room(timeout, call)
                sub.receive(PATIENCE).release()
                return found

            async def taken(*args: object) -> None:
                """Let another sender take the room that was waited for."""
                monkeypatch.undo()
                pub.send([1])
                monkeypatch.setattr(pub, "_no_room", refused)

            monkeypatch.setattr(pub, "_await_room", taken)
            assert await pub.asend([2], timeout=PATIENCE) == 1
            assert sub.receive(PATIENCE).value == 2

    asyncio.run(run())
