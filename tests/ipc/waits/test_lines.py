# SPDX-License-Identifier: Apache-2.0
"""Tasks of one loop that wait for the same: one that comes wakes one of them."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, ClassVar

import pytest

from shmnd import ipc
from shmnd.ipc.common import ringing
from shmnd.waiter import Waiter

PATIENCE = 60.0
TASKS = 100
ITEMS = 10

Get = Callable[[], Coroutine[Any, Any, Any]]
Ends = tuple[Get, Callable[[int], object]]
"""What each task awaits, and what causes that one of them ends."""


@contextlib.contextmanager
def queue_items() -> Iterator[Ends]:
    with ipc.Queue(2 * ITEMS) as q:
        yield q.aget, q.put


@contextlib.contextmanager
def queue_room() -> Iterator[Ends]:
    with ipc.Queue(1) as q:
        q.put(0)

        async def put() -> None:
            await q.aput(1)

        yield put, lambda number: q.get(timeout=PATIENCE)


@contextlib.contextmanager
def requests() -> Iterator[Ends]:
    with ipc.Server("lines", buffer=64) as server, ipc.Client("lines") as client:
        sent: list[Any] = []
        yield server.areceive, lambda number: sent.append(client.send(number, timeout=PATIENCE))


@contextlib.contextmanager
def samples() -> Iterator[Ends]:
    with ipc.Publisher("lines", "i8") as pub, ipc.Subscriber("lines", "i8", buffer=64) as sub:
        pub.wait_for_subscribers(1, PATIENCE)

        async def receive() -> int:
            with await sub.areceive() as sample:
                return int(sample.value)

        yield receive, pub.send


@contextlib.contextmanager
def numbers() -> Iterator[Ends]:
    with ipc.Listener("lines") as listener, ipc.Notifier("lines") as notifier:
        yield listener.await_ids, notifier.notify


KINDS = [queue_items, queue_room, requests, samples, numbers]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


class Interrupted(Exception):
    """As the handler of a signal raises it."""


class Counted:
    """A coroutine that notes whether it ran: the first of a line may run twice for one item."""

    ran: ClassVar[set[int]] = set()

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        sent: Any = None
        while True:
            Counted.ran.add(id(self))
            try:
                waiting = inner.send(sent)
            except StopIteration as end:
                return end.value
            try:
                sent = yield waiting
            except BaseException as exc:
                inner.throw(exc)
                raise


async def ended(tasks: list[asyncio.Task[Any]], count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while sum(task.done() and not task.cancelled() for task in tasks) < count:
            await asyncio.sleep(0.001)


async def counted(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await Counted(coroutine)


def run(kind: Any, main: Callable[[Any, list[asyncio.Task[Any]]], Awaitable[None]]) -> None:
    async def with_tasks() -> None:
        with kind() as (get, cause):
            tasks = [asyncio.create_task(counted(get())) for _ in range(TASKS)]
            await asyncio.sleep(0.05)  # all of them sleep
            await main(cause, tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(with_tasks())


@kinds
def test_one_that_comes_wakes_one_task(kind: Any) -> None:
    async def main(cause: Callable[[int], object], tasks: list[asyncio.Task[Any]]) -> None:
        Counted.ran.clear()
        for number in range(ITEMS):
            cause(number)
            await ended(tasks, number + 1)
        assert len(Counted.ran) <= 2 * ITEMS

    run(kind, main)


@pytest.mark.parametrize("kind", [queue_items, requests, samples], ids=lambda kind: kind.__name__)
def test_several_at_once_wake_as_many_tasks(kind: Any) -> None:
    async def main(cause: Callable[[int], object], tasks: list[asyncio.Task[Any]]) -> None:
        Counted.ran.clear()
        for number in range(ITEMS):
            cause(number)
        await ended(tasks, ITEMS)
        assert len(Counted.ran) <= 2 * ITEMS

    run(kind, main)


@kinds
def test_a_task_that_is_cancelled_as_it_wakes_wakes_the_next(kind: Any) -> None:
    """What it was woken for is for the next one, in whatever turn of the loop it is cancelled."""

    async def main(cause: Callable[[int], object], tasks: list[asyncio.Task[Any]]) -> None:
        for number in range(2 * ITEMS):
            waiting = [task for task in tasks if not task.done()]
            cause(number)
            for _ in range(number % 6):
                await asyncio.sleep(0)
            for task in waiting[:3]:
                task.cancel()
            await ended(tasks, number + 1)

    run(kind, main)


@pytest.mark.parametrize("kind", [queue_items, requests, samples], ids=lambda kind: kind.__name__)
def test_one_that_is_interrupted_as_it_wakes_the_next_loses_nothing(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had taken is for the next one."""

    def interrupted(*args: object) -> None:
        monkeypatch.undo()
        raise Interrupted

    async def main(cause: Callable[[int], object], tasks: list[asyncio.Task[Any]]) -> None:
        monkeypatch.setattr(ringing.Bell, "wake_next", interrupted)
        monkeypatch.setattr(Waiter, "_wake_next", interrupted)
        cause(0)
        await ended(tasks, 2)
        faults = [task.exception() for task in tasks if task.done() and task.exception()]
        assert [type(each) for each in faults] == [Interrupted]

    run(kind, main)


@kinds
def test_a_task_that_is_dropped_with_its_loop_is_quiet(kind: Any) -> None:
    faults: list[Any] = []
    before, sys.unraisablehook = sys.unraisablehook, faults.append
    try:
        with kind() as (get, cause):
            loop = asyncio.new_event_loop()
            waiting = [get() for _ in range(3)]
            tasks = [loop.create_task(each) for each in waiting]
            loop.run_until_complete(asyncio.sleep(0.05))
            loop.set_exception_handler(lambda *_: None)  # it says which tasks were pending
            loop.close()
            del tasks
            while waiting:
                waiting.pop().close()
            gc.collect()
            cause(0)
    finally:
        sys.unraisablehook = before
    assert [each.exc_value for each in faults] == []


def test_a_queue_that_is_closed_ends_all_its_tasks() -> None:
    async def main() -> None:
        q: ipc.Queue[int] = ipc.Queue(2)
        tasks = [asyncio.create_task(q.aget()) for _ in range(TASKS)]
        await asyncio.sleep(0.05)
        q.close()
        async with asyncio.timeout(PATIENCE):
            found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in found} == {ValueError}

    asyncio.run(main())
