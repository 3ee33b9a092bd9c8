# SPDX-License-Identifier: Apache-2.0
"""The future that a poll resumes: everything else that may end it resumes its task by the loop."""

import asyncio
import gc
import os
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import shmnd
from interrupting import Interrupted
from shmnd.runtime.awaiting.awaited import Awaited, resolve
from shmnd.runtime.awaiting.event_loops import EventLoops
from shmnd.runtime.awaiting.resuming import LoopPolls, UntilWoken
from shmnd.runtime.request_progress import RequestProgress
from shmnd.runtime.waiting import WaitSet


def ended_by(end: Callable[[Awaited], object]) -> BaseException | None:
    """Return what a task that awaits gets when `end` is called from the loop."""

    async def program() -> BaseException | None:
        future = Awaited()

        async def wait() -> None:
            await future

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        end(future)
        done, _ = await asyncio.wait([task], timeout=10)
        assert done, "the task was not resumed"
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    return asyncio.run(program())


def test_a_result_resumes_the_task() -> None:
    assert ended_by(lambda future: future.set_result(None)) is None
    assert ended_by(resolve) is None


def test_an_exception_reaches_the_task() -> None:
    raised = ended_by(lambda future: future.set_exception(ValueError("lost")))
    assert isinstance(raised, ValueError)
    assert raised.args == ("lost",)


def test_a_cancelled_future_cancels_its_task() -> None:
    assert isinstance(ended_by(lambda future: future.cancel()), asyncio.CancelledError)


def test_every_callback_is_called_once() -> None:
    async def program() -> list[str]:
        called: list[str] = []
        future = Awaited()
        future.add_done_callback(lambda _: called.append("first"))
        future.add_done_callback(lambda _: called.append("second"))
        future.set_result(None)
        future.add_done_callback(lambda _: called.append("late"))
        await asyncio.sleep(0.01)
        return called

    assert sorted(asyncio.run(program())) == ["first", "late", "second"]


@pytest.mark.parametrize("which", ["first", "second"])
def test_a_removed_callback_is_not_called(which: str) -> None:
    async def program() -> tuple[int, list[str]]:
        called: list[str] = []
        callbacks = {
            name: (lambda _, name=name: called.append(name)) for name in ("first", "second")
        }
        future = Awaited()
        for callback in callbacks.values():
            future.add_done_callback(callback)
        removed = future.remove_done_callback(callbacks[which])
        future.set_result(None)
        await asyncio.sleep(0.01)
        return removed, called

    removed, called = asyncio.run(program())
    assert removed == 1
    assert called == [name for name in ("first", "second") if name != which]


def test_an_engine_without_its_parts_is_refused() -> None:
    """The compiled coroutine calls their methods without a look."""
    ours, theirs = os.pipe()
    progress = RequestProgress(WaitSet())
    polls = LoopPolls(ours, lambda: None, progress)
    try:
        for loops, sleepers in ((None, None), (polls, None), (None, progress)):
            engine = SimpleNamespace(loops=loops, request_progress=sleepers)
            with pytest.raises(TypeError):
                UntilWoken(engine, [], lambda: False)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_loop_that_is_closed_right_after_its_last_wait_is_not_kept() -> None:
    with shmnd.open_adapter() as adapter:
        queue = adapter.create_completion_queue(8)
        pair = adapter.create_queue_pair(queue, queue)

        def complete() -> None:
            pair.receive(None)
            pair.flush()
            adapter._engine.progress()

        async def program() -> weakref.ref[asyncio.AbstractEventLoop]:
            waiting = asyncio.ensure_future(queue.notify())
            while not adapter._engine.loops:
                await asyncio.sleep(0)  # it polls by turns before it sleeps
            complete()
            await waiting
            return weakref.ref(asyncio.get_running_loop())

        loop = asyncio.run(program())
        gc.collect()
        assert loop() is None
        assert not adapter._engine.loops._waiting


# -- loops that take their reader out while a handler of a signal raises --


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
        """Wait once, ring without a waiter, and sleep until what that does is over."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, found: self.reports.append(found))
        self.loops.begin(loop, self)
        self.loops.end(loop, self)
        os.write(self.theirs, b".")
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


def test_a_wait_after_a_removal_that_a_handler_has_interrupted(world: World) -> None:
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


@pytest.mark.parametrize("after", [lambda: None, interrupt], ids=["", "and another one raises"])
def test_a_wait_after_one_that_a_handler_has_begun_and_ended_meanwhile(
    world: World, after: Callable[[], None]
) -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()

        def wait_within() -> None:
            world.loops.begin(loop, world)
            world.loops.end(loop, world)

        world.loops.before, world.loops.after = wait_within, after
        await world.rest(lambda: bool(world.loops.removals))
        world.loops.before = world.loops.after = lambda: None
        world.loops.begin(loop, world)
        await world.is_woken()
        world.loops.end(loop, world)

    asyncio.run(program())


def test_the_reader_is_taken_out_again_where_a_handler_has_interrupted_that(world: World) -> None:
    async def program() -> None:
        world.progress.interruptions = 1
        await world.rest(lambda: world.progress.ends > 1)
        assert not world.loops._waiting
        assert not asyncio.get_running_loop().remove_reader(world.ours)

    asyncio.run(program())
    assert world.progress.ends == 2
    assert len(world.reports) == 1


def test_a_loop_has_no_timer_for_its_reader(world: World) -> None:
    """Each sleep of a loop with a timer sets one of the kernel, which costs microseconds."""

    async def program() -> None:
        loop = asyncio.get_running_loop()
        world.loops.begin(loop, world)
        world.loops.end(loop, world)
        timers: list[asyncio.TimerHandle] = vars(loop)["_scheduled"]
        assert not timers
        await world.rest(lambda: not world.loops._waiting)
        assert world.polls == 0  # the ring is left to the next poll
        assert not loop.remove_reader(world.ours)

    asyncio.run(program())


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
