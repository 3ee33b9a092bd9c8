# SPDX-License-Identifier: Apache-2.0
"""Waiting for overlapped operations: by threads, descriptors and tasks."""

import asyncio
import os
import random
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shmnd.overlapped import (
    Overlapped,
    OverlappedFile,
    Readiness,
)
from shmnd.runtime.progress import ProgressEngine
from shmnd.status import NdError, Status
from unit.fakes import FakeAdapter
from unit.interface.overlapped_kit import CANCELED, PENDING, SUCCESS, WAIT, Thing


@pytest.fixture
def engine(adapter: FakeAdapter) -> ProgressEngine:
    return adapter._engine


# -- waiting --------------------------------------------------------------------------------------
def test_result_again_and_again(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    good, bad = thing.start(), thing.start()
    good._complete(SUCCESS)
    bad._complete(CANCELED)
    for _ in range(2):
        assert good.result() is None  # type: ignore[func-returns-value]
        with pytest.raises(NdError, match=r"^Thing\.start: canceled \[CANCELED\]$") as caught:
            bad.result(0)
        assert not isinstance(caught.value, asyncio.CancelledError)
    assert repr(bad) == "<Overlapped Thing.start CANCELED>"


def test_an_operation_that_is_over_keeps_no_step(adapter: FakeAdapter) -> None:
    """It is kept by the program as long as it likes, and its hooks would be kept with it."""
    thing = Thing(adapter)
    over, pending = thing.start_stepping(), thing.start_stepping()
    over._complete(SUCCESS)
    assert over._step is None
    assert over._cancel_hook is None
    assert pending._step is not None
    over._tick()
    over._cancel()
    assert over.status is SUCCESS


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_result_times_out_with_the_builtin_error(adapter: FakeAdapter, timeout: float) -> None:
    thing = Thing(adapter)
    pending = thing.start_stepping()
    with pytest.raises(TimeoutError, match=r"still pending after .* s, waiting for the test") as e:
        pending.result(timeout)
    assert not isinstance(e.value, NdError)
    assert pending.status is PENDING


def test_a_negative_time_to_wait_is_an_error(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start_stepping()
    with pytest.raises(ValueError, match="timeout"):
        pending.result(-1)
    assert pending.status is PENDING


def test_result_is_woken_by_another_thread(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start()
    thread = threading.Thread(target=lambda: pending._complete(SUCCESS))
    thread.start()
    pending.result(WAIT)
    thread.join()


def test_a_timer_wakes_a_wait_without_a_ring(
    adapter: FakeAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmnd.runtime.pending.LONGEST_SLEEP", 3600.0)
    engine, due = adapter._engine, time.monotonic() + 0.02
    engine.wake_at(due + 100)
    engine.wake_at(due)
    engine.wake_at(due + 50)
    assert engine.wait(lambda: time.monotonic() >= due, WAIT)


def test_ctrl_c_ends_a_wait(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at once
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            pending.result(WAIT)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not adapter._engine._wait_set._polling
    assert pending.status is PENDING
    pending._complete(SUCCESS)
    pending.result(WAIT)


def test_ctrl_c_ends_the_wait_of_a_follower(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    one, two = thing.start(), thing.start()
    leader = threading.Thread(target=one.result, args=(WAIT,))
    leader.start()
    while not adapter._engine._wait_set._polling:
        time.sleep(0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come at once
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            two.result(WAIT)
    finally:
        signal.signal(signal.SIGALRM, before)
    one._complete(SUCCESS)
    leader.join(WAIT)
    assert not leader.is_alive()


def test_waiting_costs_no_processor_time(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start_stepping()
    before = time.process_time()
    with pytest.raises(TimeoutError):
        pending.result(0.3)
    assert time.process_time() - before < 0.15
    assert thing.looked < 10


def test_two_sleepers_do_not_keep_each_other_awake(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = [thing.start(), thing.start()]

    def wait(one: Overlapped) -> None:
        with pytest.raises(TimeoutError):
            one.result(0.3)

    threads = [threading.Thread(target=wait, args=(one,)) for one in pending]
    before = time.process_time()
    for thread in threads:
        thread.start()
    for _ in range(5):
        os.eventfd_write(adapter._engine.doorbell_fd, 1)
        adapter._engine.progress()
    for thread in threads:
        thread.join(WAIT)
    assert time.process_time() - before < 0.15


def test_many_threads_wait_and_none_is_forgotten(
    adapter: FakeAdapter, file: OverlappedFile
) -> None:
    """A thread that finds something wakes all others: doorbells, completions, steps, at once."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    engine = adapter._engine
    rounds, width = 200, 6
    failures: list[BaseException] = []

    def wait_for(pending: Overlapped) -> None:
        try:
            pending.result(WAIT)
        except BaseException as exc:
            failures.append(exc)

    for _ in range(rounds):
        things = [Thing(adapter, file) for _ in range(width)]
        pending = [
            thing.start() if chance.random() < 0.5 else thing.start_stepping() for thing in things
        ]
        threads = [threading.Thread(target=wait_for, args=(ov,)) for ov in pending]
        for thread in threads:
            thread.start()
        order = list(range(width))
        chance.shuffle(order)
        for number in order:
            if pending[number]._step is None:
                pending[number]._complete(SUCCESS)
            else:
                things[number].ends = SUCCESS
                os.eventfd_write(engine.doorbell_fd, 1)
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive(), f"seed {seed}"
        assert not failures
        assert sorted(map(id, file.poll())) == sorted(map(id, pending))


def test_several_threads_complete_one_operation(adapter: FakeAdapter, file: OverlappedFile) -> None:
    for _ in range(100):
        thing = Thing(adapter, file)
        pending = thing.start()
        gate = threading.Barrier(4)
        won: list[bool] = []

        def end(
            pending: Overlapped = pending,
            gate: threading.Barrier = gate,
            won: list[bool] = won,
        ) -> None:
            gate.wait(WAIT)
            won.append(pending._complete(SUCCESS))

        threads = [threading.Thread(target=end) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert sorted(won) == [False, False, False, True]
        assert file.poll() == [pending]


# -- selecting ------------------------------------------------------------------------------------
def readable(obj: Any, timeout: float = 0) -> bool:
    return bool(select.select([obj], [], [], timeout)[0])


def test_fileno_is_readable_while_there_is_something(
    adapter: FakeAdapter, file: OverlappedFile
) -> None:
    thing = Thing(adapter, file)
    first = thing.start()
    first._complete(SUCCESS)
    assert readable(file), "also what ended before the descriptor was made"
    file.poll()
    assert not readable(file)
    second = thing.start()
    assert not readable(file)
    second._complete(SUCCESS)
    assert readable(file)
    assert file.poll() == [second]
    assert not readable(file)


def test_a_doorbell_makes_every_file_readable_until_it_is_polled(
    adapter: FakeAdapter, file: OverlappedFile
) -> None:
    other = OverlappedFile(adapter)
    thing = Thing(adapter, other)
    pending = thing.start_stepping()
    file.poll()
    assert not readable(file)
    assert not readable(other)
    thing.ends = SUCCESS
    os.eventfd_write(adapter._engine.doorbell_fd, 1)
    assert readable(file)
    assert readable(other)
    assert file.poll() == []
    assert not readable(file)
    assert readable(other)
    assert other.poll() == [pending]
    assert not readable(other)
    other.close()


def test_a_timer_shows_in_a_file(adapter: FakeAdapter, file: OverlappedFile) -> None:
    file.poll()
    assert not readable(file)
    adapter._engine.wake_at(time.monotonic() + 0.01)
    assert readable(file, WAIT)
    file.poll()
    assert not readable(file)
    adapter._engine.wake_at(0.0)
    assert readable(file, WAIT), "a moment that is over is now"


def test_an_object_without_a_descriptor_sleeps_no_more(
    engine: ProgressEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    readiness = Readiness(engine, "CompletionQueue.fileno")
    with monkeypatch.context() as patch:
        patch.setattr(engine.request_progress, "poll_unattended", interrupted)
        with pytest.raises(KeyboardInterrupt):
            readiness.fileno()
    assert readiness in engine.request_progress._sleepers
    readiness.close()
    assert not engine.request_progress._sleepers


def test_readiness_makes_descriptors_only_when_asked(engine: ProgressEngine) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    readiness = Readiness(engine, "CompletionQueue.fileno")
    readiness.set()
    readiness.clear()
    readiness.set()
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert readable(readiness)
    assert readiness.fileno() == readiness.fileno()
    readiness.close()
    readiness.close()
    readiness.set()
    readiness.clear()
    with pytest.raises(ValueError, match="closed"):
        readiness.fileno()


# -- asyncio --------------------------------------------------------------------------------------
def run(engine: ProgressEngine, main: Callable[[], Any]) -> Any:
    """Run a coroutine; afterwards nothing of the progress engine is left in the loop."""

    async def watched() -> Any:
        loop = asyncio.get_running_loop()
        threads = threading.active_count()
        try:
            return await asyncio.wait_for(main(), WAIT)
        finally:
            assert threading.active_count() == threads
            assert not engine.loops
            while engine.loops._waiting:  # the first ring without a waiter takes the reader out
                engine._wait_set.ring_own()
                await asyncio.sleep(0.001)
            assert not loop.remove_reader(engine.epoll_fd)

    return asyncio.run(watched())


def test_await_of_a_done_operation_completes_inline(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    thing.ends = SUCCESS
    done = thing.start_stepping()

    async def main() -> None:
        before: list[str] = []
        asyncio.get_running_loop().call_soon(before.append, "the loop ran")
        await done
        assert before == []

    run(adapter._engine, main)


def test_await_of_an_operation_a_poll_ends_completes_inline(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start_stepping()
    thing.ends = SUCCESS

    async def main() -> None:
        before: list[str] = []
        asyncio.get_running_loop().call_soon(before.append, "the loop ran")
        await pending
        assert before == []

    run(adapter._engine, main)


@pytest.mark.parametrize("way", ["doorbell", "same thread", "other thread", "timer"])
def test_await_wakes(adapter: FakeAdapter, way: str) -> None:
    thing = Thing(adapter)
    pending = thing.start_stepping()

    def end() -> None:
        if way == "doorbell":
            thing.ends = SUCCESS
            os.eventfd_write(adapter._engine.doorbell_fd, 1)
        elif way == "timer":
            thing.ends = SUCCESS
            adapter._engine.wake_at(time.monotonic() + 0.005)
        elif way == "same thread":
            pending._complete(SUCCESS)
        else:
            helper.start()

    helper = threading.Thread(target=pending._complete, args=(SUCCESS,))

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.005, end)
        await pending

    if way == "other thread":
        asyncio.run(asyncio.wait_for(main(), WAIT))
        helper.join()
    else:
        run(adapter._engine, main)
    assert not adapter._engine.loops
    assert not pending._waiters


def test_await_raises_the_error_every_time(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(thing.cancel_overlapped_requests)
        for _ in range(2):
            with pytest.raises(NdError, match="canceled"):
                await pending

    run(adapter._engine, main)


def test_await_by_many_tasks(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    several = [thing.start() for _ in range(10)]

    async def one(pending: Overlapped) -> Status:
        await pending
        return pending.status

    async def main() -> None:
        tasks = [asyncio.create_task(one(ov)) for ov in several * 3]
        await asyncio.sleep(0)
        assert len(adapter._engine.loops._waiting[asyncio.get_running_loop()]) == 30
        for ov in several:
            ov._complete(SUCCESS)
        assert await asyncio.gather(*tasks) == [SUCCESS] * 30

    run(adapter._engine, main)


def test_cancelling_a_task_leaves_the_operation(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pending, 0.005)
        assert pending.status is PENDING
        assert not pending._waiters
        asyncio.get_running_loop().call_soon(pending._complete, SUCCESS)
        await pending

    run(adapter._engine, main)


def test_loops_in_several_threads(adapter: FakeAdapter) -> None:
    things = [Thing(adapter) for _ in range(4)]
    failures: list[BaseException] = []

    async def main(thing: Thing) -> None:
        for _ in range(30):
            pending = thing.start_stepping()

            def end(thing: Thing = thing) -> None:
                thing.ends = SUCCESS
                os.eventfd_write(adapter._engine.doorbell_fd, 1)

            asyncio.get_running_loop().call_soon(end)
            await asyncio.wait_for(pending, WAIT)
            thing.ends = None

    def body(thing: Thing) -> None:
        try:
            asyncio.run(main(thing))
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=body, args=(thing,)) for thing in things]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT * 2)
        assert not thread.is_alive()
    assert not failures
    assert not adapter._engine.loops


def test_a_loop_that_is_closed_in_the_middle(adapter: FakeAdapter) -> None:
    thing = Thing(adapter)
    pending = thing.start()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        await pending

    task = loop.create_task(main())
    loop.run_until_complete(asyncio.sleep(0))
    assert pending._waiters
    loop.close()
    pending._complete(SUCCESS)  # no waiter is left
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    assert not adapter._engine.loops
