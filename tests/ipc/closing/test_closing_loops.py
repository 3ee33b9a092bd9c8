# SPDX-License-Identifier: Apache-2.0
"""Loops over objects end by `close`, and let go of their objects, which stay open."""

import asyncio
import itertools
import weakref
from collections.abc import Iterator
from contextlib import aclosing, closing
from functools import partial
from threading import Thread
from typing import Any

import pytest

import shmnd
from interrupting import handled, inside
from shmnd import ipc

PATIENCE = 20.0


@pytest.fixture(params=["subscriber", "server", "listener", "wait set"])
def ends(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    """An object with a loop, and alone in its list; two things wait for it."""
    if request.param == "subscriber":
        with ipc.Publisher("n", "i8", history=2) as pub:
            pub.send(0)
            pub.send(1)
            yield [ipc.Subscriber("n")]
    elif request.param == "server":
        with ipc.Client("n") as client:
            made: list[Any] = [ipc.Server("n")]
            pending = [client.send(number) for number in range(2)]
            yield made
            del pending
    elif request.param == "listener":
        with ipc.Notifier("n") as notifier:
            made = [ipc.Listener("n")]
            notifier.notify(0)
            yield made
    else:
        with ipc.Queue() as queue:
            queue.put(0)
            queue.put(1)
            yield [ipc.WaitSet(queue)]


def test_a_loop_that_was_closed_lets_go_of_its_object(ends: list[Any]) -> None:
    gone = weakref.ref(ends[0])
    with closing(iter(ends[0])) as loop:
        assert next(loop) is not None
        loop.close()
        loop.close()
        assert next(loop, None) is None
    ends.clear()
    assert gone() is None
    assert next(loop, None) is None


@pytest.mark.parametrize("kept", [False, True], ids=["waits", "has one left"])
def test_a_loop_over_a_wait_set_that_a_handler_closes_ends_with_this_object_or_before(
    kept: bool,
) -> None:
    with ipc.Queue() as first, ipc.Queue() as second, ipc.WaitSet(first, second) as both:
        first.put(0)
        second.put(1)
        for at in itertools.count():
            loop = iter(both)
            found: list[Any] = []
            if kept:
                assert next(loop) is first
            came = handled(at, partial(found.extend, map(next, [loop])), inside(shmnd), loop.close)
            assert found == [second if kept else first] or (came and not found)
            assert not came or next(loop, None) is None
            if not came:
                break
    assert at > (0 if kept else 10), "there were places to close at"


def test_an_asynchronous_loop_that_was_closed_lets_go_of_its_object(ends: list[Any]) -> None:
    gone = weakref.ref(ends[0])

    async def run() -> None:
        async with aclosing(aiter(ends[0])) as loop:
            async for found in loop:
                del found  # a request has its server
                break
            await loop.aclose()
            assert await anext(loop, None) is None
        ends.clear()
        assert gone() is None
        assert await anext(loop, None) is None

    asyncio.run(run())


def test_a_break_lets_go_at_once(ends: list[Any]) -> None:
    gone = weakref.ref(ends[0])

    async def run() -> None:
        async for found in ends[0]:
            del found  # a request has its server
            break
        ends.clear()
        assert gone() is None

    asyncio.run(run())


def test_the_object_stays_open() -> None:
    with ipc.Publisher("n", "i8", history=3) as pub, ipc.Subscriber("n") as sub:
        for number in range(3):
            pub.send(number)
        with closing(iter(sub)) as loop:
            assert next(loop).value == 0
        assert sub.receive(PATIENCE).value == 1
        assert next(iter(sub)).value == 2


def test_aclosing_of_a_stream_ends_its_generator() -> None:
    ended = []

    def count(request: ipc.Request) -> Iterator[int]:
        try:
            yield from range(request.value)
        finally:
            ended.append(request.value)

    async def read(client: ipc.Client) -> None:
        async with aclosing(client.stream(1_000_000)) as values:
            async for answer in values:
                assert answer.value == 0
                break
        assert (await client.acall(1, timeout=PATIENCE)).value == 0

    with ipc.Server("s") as server, ipc.Client("s") as client:
        thread = Thread(target=server.serve, args=(count,))
        thread.start()
        try:
            asyncio.run(read(client))
        finally:
            server.close()
            thread.join(PATIENCE)
        assert sorted(ended) == [1, 1_000_000]


def test_aclosing_of_a_watch() -> None:
    async def run() -> None:
        async with aclosing(ipc.watch()) as changes:
            with ipc.Listener("w"):
                async for change in changes:
                    if change.name == "w":
                        break
        assert "closed" in repr(changes)

    asyncio.run(run())
