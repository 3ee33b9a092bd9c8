# SPDX-License-Identifier: Apache-2.0
"""A thread or task that sleeps for a completion: what happens from the ring to its result.

No wait here ends by itself before the test does, so a lost wake-up is a failure.
"""

import asyncio
import random
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shmnd import Status
from shmnd.ring.process.waiting import set_longest_at_word
from spi.harness import WAIT, contexts, wait_until
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


def test_a_sender_that_sleeps_is_woken_by_the_receive_alone(ends: Ends) -> None:
    """Its Send completes although the peer makes no further call."""
    patient = ends.pair("two", rnr_timeout=120.0).connect()
    source, sink = patient.active.memory(16), patient.passive.memory(16)
    queue = patient.active.cq
    patient.active.qp.send(source.sge(), "sent")
    taken: list[Any] = []
    sender = threading.Thread(target=lambda: taken.extend(queue.wait(1)))
    sender.start()
    wait_until(lambda: queue._attended, "the sender sleeps")
    patient.passive.qp.receive(sink.sge(), "received")
    sender.join(WAIT)
    if sender.is_alive():
        queue.close()  # ends the wait
        sender.join(WAIT)
    assert [result.request_context for result in taken] == ["sent"]
    assert contexts(patient.passive.reap()) == ["received"]


@pytest.fixture(params=["at the word", "on the epoll"])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a thread sleeps."""
    if request.param == "on the epoll":
        set_longest_at_word(0.0)
    yield request.param
    set_longest_at_word(3600.0)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("how", ["disconnect", "connector", "queue pair"])
def test_a_thread_that_sleeps_is_woken_by_the_end_from_this_side(ends: Ends, how: str) -> None:
    """The peer, which makes no call, rings nothing."""
    pair = ends.pair("two").connect()
    end, queue = pair.active, pair.active.cq
    end.qp.receive(None, "canceled")
    taken: list[Any] = []
    sleeper = threading.Thread(target=lambda: taken.extend(queue.wait(1)))
    sleeper.start()
    wait_until(lambda: queue._attended, "a thread sleeps")
    if how == "disconnect":
        end.connector.disconnect()
    else:
        (end.connector if how == "connector" else end.qp).close()
    sleeper.join(WAIT)
    if sleeper.is_alive():
        queue.close()  # ends the wait
        sleeper.join(WAIT)
    assert [result.status for result in taken] == [Status.CANCELED]


def test_a_long_message_comes_to_a_program_that_waits_at_a_descriptor_alone(ends: Ends) -> None:
    """The descriptor becomes readable for each of its pieces."""
    connected = ends.pair("two").connect()
    size = 64 << 20
    source, sink = connected.passive.memory(size), connected.active.memory(size)
    end = connected.active
    connected.passive.qp.send(source.sge())
    arrived = end.cq.notify()
    descriptor = end.cq.fileno()
    end.qp.receive(sink.sge(), "long")
    until = time.monotonic() + WAIT
    while not arrived.done():
        assert time.monotonic() < until
        select.select([descriptor], [], [], 1)
    assert contexts(end.reap()) == ["long"]


def test_a_completion_that_the_first_sleeper_finds_wakes_the_second(ends: Ends) -> None:
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


def test_a_task_is_resumed_by_the_poll_that_ended_its_operation(pair: Pair) -> None:
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


def test_a_task_continues_in_the_turn_of_its_loop_that_found_its_message(pair: Pair) -> None:
    """The loop asks the kernel once for each message, and not once more to resume the task."""
    end = pair.active
    end.cq.spin = 0.0
    turns = 0

    async def main() -> None:
        nonlocal turns
        loop: Any = asyncio.get_running_loop()
        select = loop._selector.select

        def counted(timeout: float | None = None) -> Any:
            nonlocal turns
            turns += 1
            return select(timeout)

        loop._selector.select = counted
        end.qp.receive(None, "found")
        told = end.cq.notify()
        loop.call_soon(pair.passive.qp.send, None)
        turns = 0
        await told
        assert [result.request_context for result in end.cq.get_results()] == ["found"]
        assert turns == 2  # one for the Send, and one for its message

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_a_task_that_is_cancelled_while_it_sleeps_is_resumed_by_its_loop(pair: Pair) -> None:
    end = pair.active
    end.cq.spin = 0.0

    async def main() -> None:
        told = end.cq.notify()

        async def wait() -> None:
            await told

        tasks = [asyncio.create_task(wait()) for _ in range(2)]
        await asyncio.sleep(0.01)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert not told.done()
        end.qp.receive(None)
        pair.passive.qp.send(None)
        await asyncio.wait_for(tasks[1], WAIT)

    asyncio.run(main())


def test_tasks_whose_waits_one_poll_ends_all_continue_when_one_of_them_is_interrupted(
    pair: Pair,
) -> None:
    end = pair.active
    end.cq.spin = 0.0
    ended: list[int] = []
    loop = asyncio.new_event_loop()

    async def wait(told: Any, number: int) -> None:
        await told
        ended.append(number)
        if number == 0:
            raise KeyboardInterrupt

    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        told = end.cq.notify()
        tasks.extend(asyncio.create_task(wait(told, number)) for number in range(3))
        await asyncio.sleep(0.01)
        end.qp.receive(None)
        pair.passive.qp.send(None)
        await asyncio.wait(tasks, timeout=WAIT)

    try:
        running = loop.create_task(main())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(running)
        loop.run_until_complete(running)
        assert sorted(ended) == [0, 1, 2]
        assert isinstance(tasks[0].exception(), KeyboardInterrupt)
    finally:
        loop.close()


@pytest.fixture
def begun(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The waits that a loop began to sleep for."""
    loops = pair.active.adapter._engine.loops
    begun: list[object] = []
    begin = loops.begin

    def counted(loop: Any, wake: Any) -> None:
        begun.append(wake)
        begin(loop, wake)

    monkeypatch.setattr(loops, "begin", counted)
    return begun


def test_a_task_polls_before_it_sleeps(pair: Pair, begun: list[object]) -> None:
    """An answer that comes at once costs neither a sleep nor a ring."""
    end = pair.active
    armed: list[bool] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(5):
            end.cq.spin = WAIT
            end.qp.receive(None, number)
            told = end.cq.notify()
            loop.call_later(
                0.002, lambda: (armed.append(end.cq._armed), pair.passive.qp.send(None))
            )
            await told
            assert [result.request_context for result in end.cq.get_results()] == [number]

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert begun == []
    assert armed == [False] * 5


def test_a_window_of_zero_sleeps_at_once_in_a_task(pair: Pair, begun: list[object]) -> None:
    end = pair.active
    end.cq.spin = 0.0
    end.qp.receive(None, "woken")
    armed: list[bool] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        told = end.cq.notify()
        loop.call_later(0.002, lambda: (armed.append(end.cq._armed), pair.passive.qp.send(None)))
        await told

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert len(begun) == 1
    assert armed == [True]
    assert [result.request_context for result in end.cq.get_results()] == ["woken"]


def test_other_tasks_run_while_one_polls(pair: Pair) -> None:
    end = pair.active
    end.cq.spin = WAIT
    end.qp.receive(None, "late")

    async def others() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        pair.passive.qp.send(None)

    async def main() -> None:
        task = asyncio.create_task(others())
        await end.cq.notify()
        await task

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert [result.request_context for result in end.cq.get_results()] == ["late"]


def test_a_message_that_arrives_as_the_window_of_a_task_ends_wakes_it(pair: Pair) -> None:
    """Whatever the moment: polled for, between the last poll and the sleep, or asleep."""
    end = pair.active
    chance = random.Random(1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(300):
            end.cq.spin = 0.0002
            end.qp.receive(None, number)
            told = end.cq.notify()
            loop.call_later(chance.uniform(0, 0.0006), pair.passive.qp.send, None)
            await asyncio.wait_for(asyncio.ensure_future(_awaited(told)), WAIT)
            assert [result.request_context for result in end.cq.get_results()] == [number]

    asyncio.run(main())


async def _awaited(told: Any) -> None:
    await told


def test_a_task_that_is_cancelled_while_it_polls_leaves_the_bell_armed(pair: Pair) -> None:
    end = pair.active
    end.cq.spin = WAIT
    end.qp.receive(None, "after")
    told = end.cq.notify()

    async def main() -> None:
        task = asyncio.create_task(_awaited(told))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not end.cq._armed
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert end.cq._armed
    pair.passive.qp.send(None)
    told.result(WAIT)
    assert [result.request_context for result in end.cq.get_results()] == ["after"]


def test_a_queue_with_a_descriptor_is_armed_while_a_task_polls(pair: Pair) -> None:
    """A thread that selects it is woken also while the loop of the task runs another callback."""
    end = pair.active
    end.cq.spin = WAIT
    end.qp.receive(None, "one")
    end.cq.fileno()

    async def main() -> None:
        task = asyncio.create_task(_awaited(end.cq.notify()))
        for _ in range(40):  # the task looks for other news each few of its turns, and disarms
            await asyncio.sleep(0)
            assert end.cq._armed
        assert end.cq._turns == 1
        pair.passive.qp.send(None)
        await task

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert [result.request_context for result in end.cq.get_results()] == ["one"]


def test_a_queue_with_another_notify_is_armed_while_a_task_polls(pair: Pair) -> None:
    """Its descriptor or thread needs the ring; and so does the descriptor of the queue."""
    end = pair.active
    end.cq.spin = WAIT
    end.qp.receive(None, "both")
    other = end.cq.notify()

    async def main() -> None:
        task = asyncio.create_task(_awaited(end.cq.notify()))
        for _ in range(5):
            await asyncio.sleep(0)
        assert end.cq._armed
        pair.passive.qp.send(None)
        await task

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert other.done()
    assert [result.request_context for result in end.cq.get_results()] == ["both"]


def test_a_message_that_arrives_before_a_task_arms_the_bell_needs_no_ring(
    pair: Pair, begun: list[object]
) -> None:
    """After its last poll, and before peers know that they have to ring."""
    end = pair.active
    end.cq.spin = 0.001
    end.qp.receive(None, "between")
    arm, sent = end.cq._arm_for, []

    def after_a_message(mode: int) -> None:
        if sent == ["wanted"] and end.cq._turns == 0:
            sent.append("sent")
            pair.passive.qp.send(None)
        arm(mode)

    end.cq._arm_for = after_a_message

    async def main() -> None:
        told = end.cq.notify()
        sent.append("wanted")
        await told

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert begun == []
    assert [result.request_context for result in end.cq.get_results()] == ["between"]


@pytest.mark.parametrize("how", ["disconnect", "close"])
def test_a_task_that_polls_sees_the_end_of_its_peer(
    pair: Pair, begun: list[object], how: str
) -> None:
    """No message arrives then, however long the window is."""
    end = pair.active
    end.cq.spin = WAIT
    end.qp.receive(None)

    async def main() -> None:
        task = asyncio.create_task(_awaited(end.cq.notify()))
        await asyncio.sleep(0.01)
        if how == "close":
            pair.passive.qp.close()
        else:
            pair.passive.connector.disconnect()
        await task

    asyncio.run(asyncio.wait_for(main(), WAIT / 2))
    assert begun == []
    assert [result.status for result in end.cq.get_results()] == [Status.CANCELED]


def test_a_task_that_polls_sees_the_death_of_its_peer(ends: Ends, kill: Callable[[], int]) -> None:
    pair = ends.pair("two").connect()
    end = pair.active
    end.cq.spin = WAIT
    end.qp.receive(None)

    async def main() -> None:
        task = asyncio.create_task(_awaited(end.cq.notify()))
        await asyncio.sleep(0.01)
        kill()
        await task

    asyncio.run(asyncio.wait_for(main(), WAIT / 2))
    assert [result.status for result in end.cq.get_results()] == [Status.CANCELED]


def test_long_waits_shorten_the_polls_and_short_ones_restore_them(pair: Pair) -> None:
    queue = pair.active.cq
    queue.spin = 0.01
    for _ in range(10):
        assert queue.wait(1, 0.1) == []
    assert queue._poll_window() == queue.spin / 8
    # Waits that no poll ends, but short ones, as where both sides sleep at each message.
    wait_until(
        lambda: queue.wait(1, 0.015) == [] and queue._poll_window() == queue.spin,
        "the polls are long",
    )


def test_the_waits_of_tasks_count_too(pair: Pair) -> None:
    end, other = pair.active, pair.passive
    end.cq.spin = 0.01

    async def exchange(delay: float) -> None:
        end.qp.receive(None, "came")
        told = end.cq.notify()
        asyncio.get_running_loop().call_later(delay, other.qp.send, None)
        await asyncio.wait_for(told, WAIT)
        assert len(end.cq.get_results()) == 1
        other.cq.get_results()

    async def run() -> None:
        for _ in range(10):
            await exchange(0.1)
        assert end.cq._poll_window() == end.cq.spin / 8
        for _ in range(200):
            await exchange(0.015)
            if end.cq._poll_window() == end.cq.spin:
                return
        pytest.fail("the polls stay short")

    asyncio.run(run())


@pytest.mark.parametrize("spin", [0.0, float("inf"), 1e300])
def test_any_number_of_seconds_may_be_the_time_of_polls(pair: Pair, spin: float) -> None:
    end = pair.active
    end.cq.spin = spin
    for _ in range(3):
        end.qp.receive(None, "came")
        pair.passive.qp.send(None)
        assert [r.request_context for r in end.cq.wait(1, WAIT)] == ["came"]
    assert end.cq.wait(1, 0.001) == []


@pytest.mark.parametrize("spin", [-1, float("nan"), "50e-6", None, True])
def test_a_queue_keeps_its_time_of_polls_when_another_is_refused(pair: Pair, spin: Any) -> None:
    queue = pair.active.cq
    before = queue.spin
    with pytest.raises(ValueError, match=r"^CompletionQueue\.spin: spin "):
        queue.spin = spin
    assert queue.spin == before


def test_polls_that_keep_the_peer_from_running_end_until_they_find_something(pair: Pair) -> None:
    end, other = pair.active, pair.passive
    end.cq.spin = 0.01

    def exchange(delay: float) -> None:
        """Wait as long as a peer needs that gets a CPU so long after the wait began."""
        end.qp.receive(None, "came")
        timer = threading.Timer(delay, other.qp.send, [None])
        timer.start()
        assert [r.request_context for r in end.cq.wait(1, WAIT)] == ["came"]
        timer.join()
        other.cq.get_results()

    def polls() -> float:
        exchange(0.012)  # just after the window
        return end.cq._poll_window()

    wait_until(lambda: polls() == 0, "the next waits sleep at once")

    def polls_again() -> bool:
        exchange(0.002)  # a try finds it, and ends the sleeps
        return [end.cq._poll_window() > 0 for _ in range(4)] == [True] * 4

    wait_until(polls_again, "the polls find the messages of a peer that runs")
