# SPDX-License-Identifier: Apache-2.0
"""The future that a poll resumes: everything else that may end it resumes its task by the loop."""

import asyncio
import gc
import os
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest

import shmnd
from shmnd.runtime.awaiting.awaited import Awaited, resolve
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
