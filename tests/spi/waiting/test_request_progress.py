# SPDX-License-Identifier: Apache-2.0
"""Requests without a waiter make progress in the waits for something else.

No test polls the queue that the requests complete to before the other end has everything.
"""

import asyncio
import contextlib
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shmnd import OpFlag, Status
from spi.harness import (
    REMOTE,
    WAIT,
    Buffer,
    End,
    contexts,
    final,
    nd_error,
    statuses,
    succeeded,
    wait_until,
)
from spi.pair import Pair
from spi.remote import Ends

MakePair = Callable[..., Pair]

COUNT = 200
SIZE = 3000
"""So many of these fill the ring several times, and wait for no receive as long as they fit."""


MESSAGES = b"".join(number.to_bytes(2, "little") * (SIZE // 2) for number in range(COUNT))


def post_all(pair: Pair) -> Buffer:
    """More Sends than the ring holds, with a receive for each; where they will arrive."""
    source, sink = pair.active.memory(len(MESSAGES)), pair.passive.memory(len(MESSAGES))
    source.put(MESSAGES)
    for number in range(COUNT):
        pair.active.qp.send(source.sge(number * SIZE, SIZE), number)
    for number in range(COUNT):
        pair.passive.qp.receive(sink.sge(number * SIZE, SIZE), number)
    return sink


def another_queue(end: End, queue: Any) -> None:
    with nd_error(Status.INVALID_HANDLE):  # its adapter is closed in the end
        queue.wait(timeout=2 * WAIT)


def the_end(end: End, queue: Any = None) -> None:
    end.connector.notify_disconnect().result(timeout=2 * WAIT)


def seconds_to_the_end(end: End) -> float:
    """Such a wait polls again when its time is over; that late, it would find the end, too."""
    began = time.monotonic()
    the_end(end)
    return time.monotonic() - began


def in_a_loop(end: End, queue: Any) -> None:
    async def told() -> None:
        with nd_error(Status.CANCELED):
            await queue.notify()

    asyncio.run(asyncio.wait_for(told(), 2 * WAIT))


def on_the_descriptor_of_a_queue(end: End, queue: Any) -> None:
    queue = end.new_cq()  # which is not closed under it
    notice = end.connector.notify_disconnect()
    while not notice.done():
        assert select.select([queue], [], [], 2 * WAIT)[0]


def on_the_descriptor_of_a_file(end: End, queue: Any) -> None:
    notice = end.connector.notify_disconnect()
    while notice not in end.file.poll():
        assert select.select([end.file], [], [], 2 * WAIT)[0]


@pytest.mark.active_end_here
@pytest.mark.parametrize(
    "wait",
    [
        another_queue,
        the_end,
        in_a_loop,
        on_the_descriptor_of_a_queue,
        on_the_descriptor_of_a_file,
    ],
)
def test_sends_continue_while_their_process_sleeps_for_something_else(
    make_pair: MakePair, wait: Callable[..., None]
) -> None:
    pair = make_pair(depth=COUNT, cq_depth=2 * COUNT, rnr_timeout=120.0).connect()
    queue = pair.active.new_cq()
    sleeper = threading.Thread(target=wait, args=(pair.active, queue), daemon=True)
    sleeper.start()
    time.sleep(0.1)  # it may be asleep already when the first of them is posted
    sink = post_all(pair)
    assert succeeded(pair.passive.reap(COUNT), SIZE) == list(range(COUNT))
    assert sink.get() == MESSAGES
    assert succeeded(pair.active.reap(COUNT)) == list(range(COUNT))
    pair.hang_up(pair.passive)
    queue.close()
    sleeper.join(WAIT)
    assert not sleeper.is_alive()


def test_sends_continue_while_their_process_polls_another_queue(ends: Ends) -> None:
    pair = ends.pair("one", depth=COUNT, cq_depth=2 * COUNT, rnr_timeout=120.0).connect()
    sink = post_all(pair)
    wait_until(lambda: pair.passive.gather() == COUNT, "all of them received")
    assert succeeded(pair.passive.take(), SIZE) == list(range(COUNT))
    assert sink.get() == MESSAGES
    assert succeeded(pair.active.reap(COUNT)) == list(range(COUNT))


def test_a_send_times_out_while_its_process_waits_for_something_else(
    impatient: Pair,
) -> None:
    notice = impatient.passive.connector.notify_disconnect()
    impatient.active.qp.send(None, "unreceived")
    assert impatient.active.run(seconds_to_the_end) < WAIT
    assert statuses(impatient.active.leftover()) == [Status.IO_TIMEOUT]
    assert final(notice) == Status.SUCCESS


def test_a_send_times_out_while_a_thread_sleeps_for_it(impatient: Pair) -> None:
    began = time.monotonic()
    impatient.active.qp.send(None, "unreceived")
    (completion,) = impatient.active.reap()
    assert completion.status == Status.IO_TIMEOUT
    assert time.monotonic() - began >= impatient.active.options.rnr_timeout


LONG = 16 << 20
"""More than a call copies at once, several times."""


@pytest.mark.active_end_here
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("request_name", ["write", "read"])
def test_a_call_that_never_waits_copies_a_piece(
    connected: Pair, request_name: str, private: bool
) -> None:
    here = connected.active.memory(LONG, private=private)
    there = connected.passive.memory(LONG, REMOTE)
    token = there.remote_token
    getattr(connected.active.qp, request_name)(here.sge(), there.address, token, "long")
    calls = 0
    while not (results := connected.active.cq.get_results()):
        calls += 1
    assert [result.request_context for result in results] == ["long"]
    assert calls >= 4


@pytest.mark.active_end_here
@pytest.mark.parametrize("wait", [another_queue, the_end, in_a_loop, on_the_descriptor_of_a_queue])
def test_a_long_copy_continues_while_its_process_sleeps_for_something_else(
    make_pair: MakePair, wait: Callable[..., None]
) -> None:
    pair = make_pair().connect()
    here, there = pair.active.memory(LONG), pair.passive.memory(LONG, REMOTE)
    here.put(b"\1" * LONG)
    pair.active.qp.write(here.sge(), there.address, there.remote_token, "long")
    queue = pair.active.new_cq()
    sleeper = threading.Thread(target=wait, args=(pair.active, queue), daemon=True)
    sleeper.start()
    wait_until(lambda: there.get(1, LONG - 1) == b"\1", "the last byte")
    assert statuses(pair.active.reap()) == [Status.SUCCESS]
    pair.hang_up(pair.passive)
    queue.close()
    sleeper.join(WAIT)
    assert not sleeper.is_alive()


def test_a_receiver_ends_a_long_message_whose_sender_computes(connected: Pair) -> None:
    source, sink = connected.active.memory(LONG), connected.passive.memory(LONG)
    source.put(b"\1" * LONG)
    connected.passive.qp.receive(sink.sge(), "long")
    connected.active.qp.send(source.sge())
    assert succeeded(connected.passive.reap(), LONG) == ["long"]
    assert sink.get() == b"\1" * LONG
    assert statuses(connected.active.reap()) == [Status.SUCCESS]


MANY = 300
"""More messages than the ring holds."""


def receives_for_all(end: End) -> None:
    sink = end.memory(64)
    for number in range(MANY):
        end.qp.receive(sink.sge(), number)


def send_all(end: End) -> None:
    source = end.memory(40)
    for number in range(MANY):
        end.qp.send(source.sge(), number)


def a_poll_of_another_queue(end: End, queue: Any) -> None:
    deadline = time.monotonic() + 2 * WAIT
    with nd_error(Status.INVALID_HANDLE):  # it is closed in the end
        while time.monotonic() < deadline:
            queue.get_results()


ELSEWHERE = [
    another_queue,
    the_end,
    in_a_loop,
    on_the_descriptor_of_a_queue,
    on_the_descriptor_of_a_file,
    a_poll_of_another_queue,
]
"""Receivers that poll none of the queues of their connection."""


@contextlib.contextmanager
def busy_elsewhere(pair: Pair, wait: Callable[..., None]) -> Iterator[None]:
    """The active end, in this process, waits for something else meanwhile."""
    queue = pair.active.new_cq()
    sleeper = threading.Thread(target=wait, args=(pair.active, queue), daemon=True)
    sleeper.start()
    yield
    pair.hang_up(pair.passive)
    queue.close()
    sleeper.join(WAIT)
    assert not sleeper.is_alive()


@pytest.mark.active_end_here
@pytest.mark.parametrize("wait", ELSEWHERE)
def test_messages_are_taken_while_their_process_waits_for_something_else(
    make_pair: MakePair, wait: Callable[..., None]
) -> None:
    pair = make_pair(depth=MANY, cq_depth=2 * MANY, rnr_timeout=120.0).connect()
    receives_for_all(pair.active)
    with busy_elsewhere(pair, wait):
        time.sleep(0.1)  # it may be asleep already when the first of them comes
        send_all(pair.passive)
        assert statuses(pair.passive.reap(MANY)) == [Status.SUCCESS] * MANY
        assert succeeded(pair.active.reap(MANY), 40) == list(range(MANY))


@pytest.mark.active_end_here
@pytest.mark.parametrize("wait", ELSEWHERE)
def test_a_window_is_ended_while_its_owner_waits_for_something_else(
    connected: Pair, wait: Callable[..., None]
) -> None:
    owner, sender = connected.active, connected.passive
    window = connected.window(owner, owner.memory(64, REMOTE), OpFlag.ALLOW_READ)
    owner.qp.receive(None, "and ended")
    with busy_elsewhere(connected, wait):
        time.sleep(0.1)
        sender.qp._send_and_invalidate(None, window.remote_token, "sent")
        assert statuses(sender.reap()) == [Status.SUCCESS]
        assert contexts(owner.reap()) == ["and ended"]


def test_messages_are_taken_while_their_thread_polls_for_their_sends(ends: Ends) -> None:
    pair = ends.pair("one", depth=MANY, cq_depth=2 * MANY, rnr_timeout=120.0).connect()
    receives_for_all(pair.passive)
    send_all(pair.active)
    wait_until(lambda: pair.active.gather() == MANY, "all Sends over")
    assert statuses(pair.active.take()) == [Status.SUCCESS] * MANY
    assert succeeded(pair.passive.reap(MANY), 40) == list(range(MANY))


def test_a_window_is_ended_while_its_thread_polls_for_the_send(ends: Ends) -> None:
    pair = ends.pair("one").connect()
    window = pair.window(pair.passive, pair.passive.memory(64, REMOTE), OpFlag.ALLOW_READ)
    pair.passive.qp.receive(None, "and ended")
    pair.active.qp._send_and_invalidate(None, window.remote_token, "sent")
    wait_until(lambda: pair.active.gather() == 1, "the Send over")
    assert statuses(pair.active.take()) == [Status.SUCCESS]
    assert contexts(pair.passive.reap()) == ["and ended"]


def test_many_busy_queues_do_not_each_poll_all_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = pair.active.adapter
    progress = adapter._engine.request_progress
    rounds = 0
    poll = progress.poll

    def counted(besides: Any = None) -> None:
        nonlocal rounds
        rounds += 1
        poll(besides)

    monkeypatch.setattr(progress, "poll", counted)
    queues = [adapter.create_completion_queue(4) for _ in range(30)]
    begun = time.monotonic()
    while rounds < 2 or time.monotonic() < begun + 0.2:
        for queue in queues:
            assert not queue.get_results()
    lasted = time.monotonic() - begun
    assert rounds <= lasted / 0.004 + 2, "by each queue: every 10 ms, thirty times as many"
