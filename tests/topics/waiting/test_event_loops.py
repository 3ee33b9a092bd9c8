# SPDX-License-Identifier: Apache-2.0
"""Publishers in event loops: other tasks run while they wait for subscribers and for room."""

import asyncio

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
