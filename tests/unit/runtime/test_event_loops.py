# SPDX-License-Identifier: Apache-2.0
"""Loops that end their rest while a handler of a signal raises: the next wait there is woken."""

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interrupting import Interrupted
from shmnd.runtime.awaiting.event_loops import EventLoops
from shmnd.runtime.request_progress import RequestProgress
from shmnd.runtime.waiting import WaitSet

SOON = 10.0


class Progress(RequestProgress):
    """Its `end` may be interrupted."""

    def __init__(self) -> None:
        super().__init__(WaitSet())
        self.interruptions = 0
        self.ends = 0

    def end(self, sleeper: object) -> None:
        self.ends += 1
        if self.ends <= self.interruptions:
            raise Interrupted
        super().end(sleeper)


class Loops(EventLoops):
    """A handler runs before, or after, the reader is removed."""

    before: Callable[[], None] = staticmethod(lambda: None)
    after: Callable[[], None] = staticmethod(lambda: None)
    removals = 0

    def _remove_reader(self, loop: asyncio.AbstractEventLoop) -> None:
        self.before()
        super()._remove_reader(loop)
        self.removals += 1
        self.after()


class World:
    """A descriptor that loops watch, and how often it was found readable."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.pipe()
        self.polls = 0
        self.progress = Progress()
        self.loops = Loops(self.ours, self.poll, self.progress)
        self.woken: list[str] = []
        self.reports: list[dict[str, Any]] = []
        """With their tracebacks, as the log of a program may keep them."""

    def poll(self) -> None:
        self.polls += 1
        os.read(self.ours, 1)

    async def rest(self, over: Callable[[], bool]) -> None:
        """Wait once, and then until the rest of the loop is over."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, found: self.reports.append(found))
        self.loops.begin(loop, self)
        self.loops.end(loop, self)
        await self.until(over)

    async def until(self, over: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON):
            while not over():
                await asyncio.sleep(0.001)

    async def is_woken(self) -> None:
        """Fail unless the loop polls when the descriptor becomes readable."""
        polls = self.polls
        os.write(self.theirs, b".")
        await self.until(lambda: self.polls > polls)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    os.close(made.ours)
    os.close(made.theirs)


def interrupt() -> None:
    raise Interrupted


def test_a_wait_after_a_rest_whose_end_a_handler_has_interrupted(world: World) -> None:
    async def program() -> None:
        world.loops.after = interrupt
        await world.rest(lambda: bool(world.reports))
        world.loops.after = lambda: None
        world.loops.begin(asyncio.get_running_loop(), world)
        await world.is_woken()
        world.loops.end(asyncio.get_running_loop(), world)

    asyncio.run(program())


def test_a_wait_that_a_handler_begins_while_the_reader_is_removed(world: World) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        world.loops.before = lambda: world.loops.begin(loop, world)
        await world.rest(lambda: bool(world.loops.removals))
        world.loops.before = lambda: None
        await world.is_woken()
        world.loops.end(loop, world)

    asyncio.run(program())


def test_the_rest_is_ended_again_where_a_handler_interrupts_its_last_step(world: World) -> None:
    async def program() -> None:
        world.progress.interruptions = 1
        loop = asyncio.get_running_loop()
        world.loops.begin(loop, world)
        world.loops.end(loop, world)
        loop.set_exception_handler(lambda *_: None)  # it keeps nothing
        await world.until(lambda: world.progress.ends > 0)
        gc.collect()  # the report of asyncio is a cycle
        await world.until(lambda: not world.loops._waiting)

    asyncio.run(program())
    assert world.progress.ends == 2


def test_all_tasks_are_woken_by_the_second_close_where_a_handler_has_ended_the_first(
    world: World,
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        wake = lambda: world.woken.append("woken")  # noqa: E731
        world.loops.begin(loop, wake)
        world.loops.before = interrupt
        with pytest.raises(Interrupted):
            world.loops.leave()
        world.loops.before = lambda: None
        world.loops.leave()
        assert world.woken == ["woken"]
        assert not world.loops._waiting
        world.loops.end(loop, wake)

    asyncio.run(program())
