# SPDX-License-Identifier: Apache-2.0
"""Turns of a connection: long messages of tasks, in one event loop after another, and of
threads.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from interrupting import inside, interrupted
from processes.messages.kit import LIMIT, Pair, pattern
from shmnd.messaging import copying

NBYTES = 100_000
"""A message of several pieces: it takes a turn."""


def received(connection: shmnd.Connection) -> list[bytes]:
    """Take the messages that are there."""
    taken = []
    while connection.poll(0.01):
        taken.append(connection.recv_bytes(LIMIT))
    return taken


@pytest.mark.parametrize("loops", [1, 3])
def test_tasks_of_one_event_loop_after_another_take_turns(pair: Pair, loops: int) -> None:
    near, far = pair
    messages = [pattern(20 * NBYTES, number) for number in range(3)]  # more than goes at once

    async def work() -> list[bytes]:
        sending = [asyncio.create_task(near.asend_bytes(each, LIMIT)) for each in messages]
        got = [await far.arecv_bytes(LIMIT) for _ in messages]
        await asyncio.gather(*sending)
        return got

    for _ in range(loops):
        assert asyncio.run(work()) == messages
    near.send_bytes(messages[0][:NBYTES], LIMIT)
    assert far.recv_bytes(LIMIT) == messages[0][:NBYTES]


def test_an_event_loop_that_is_in_the_midst_of_a_message_is_not_held_up(pair: Pair) -> None:
    near, far = pair
    message = pattern(20 * NBYTES)

    async def work() -> bytes:
        sending = asyncio.create_task(near.asend_bytes(message, LIMIT))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="send_bytes: a task of the event loop"):
            near.send_bytes(message, LIMIT)
        got = await far.arecv_bytes(LIMIT)
        await sending
        return got

    assert asyncio.run(work()) == message
    near.send_bytes(message[:NBYTES], LIMIT)
    assert far.recv_bytes(LIMIT) == message[:NBYTES]


def test_a_task_does_not_cut_the_message_of_a_thread_in_two(pair: Pair) -> None:
    near, far = pair
    message = pattern(20 * NBYTES)
    thread = threading.Thread(target=near.send_bytes, args=(message, LIMIT))
    thread.start()
    while not near._messages.busy:
        thread.join(0.001)
    with pytest.raises(RuntimeError, match="asend_bytes: a thread or another event loop"):
        asyncio.run(near.asend_bytes(message, LIMIT))
    assert far.recv_bytes(LIMIT) == message
    thread.join(LIMIT)
    asyncio.run(near.asend_bytes(message[:NBYTES], LIMIT))
    assert far.recv_bytes(LIMIT) == message[:NBYTES]


def test_a_receive_whose_message_another_thread_takes_keeps_its_time_out(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw the message as it began, and waited without an end for the next one."""
    near, far = pair
    taken: list[bytes] = []
    wait = shmnd.Connection._wait

    def taken_first(self: shmnd.Connection, *arguments: Any) -> bool:
        if not taken:
            taker = threading.Thread(target=lambda: taken.append(self.recv_bytes(LIMIT)))
            taker.start()
            taker.join()
        return wait(self, *arguments)

    near.send_bytes(b"one")
    assert far.poll(LIMIT)
    monkeypatch.setattr(shmnd.Connection, "_wait", taken_first)
    too_late = threading.Timer(LIMIT, lambda: near.send_bytes(b"another"))
    too_late.start()
    with pytest.raises(TimeoutError):
        far.recv_bytes(0.01, maxlength=8)
    too_late.cancel()
    assert taken == [b"one"]


@pytest.mark.parametrize("within", [0, LIMIT])
def test_a_receive_into_memory_keeps_its_time_out_beside_another_one(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, within: float
) -> None:
    """Another thread, or the handler of a signal, receives while its buffer is examined."""
    near, far = pair
    between: list[object] = []

    def received_between(*_: object) -> bool:
        with contextlib.suppress(TimeoutError):
            between.append(far.recv_bytes(within))
        return False

    monkeypatch.setattr(copying, "holds_objects", received_between)
    if within:
        near.send_bytes(b"between")
        with pytest.raises(TimeoutError):
            far.recv_into(memoryview(bytearray(8)), 0.01)
    else:
        later = threading.Timer(0.3, lambda: near.send_bytes(b"one"))
        later.start()
        assert far.recv_into(memoryview(bytearray(8)), LIMIT) == 3
        later.join()
    assert between == [b"between"] * (within > 0)


def test_a_receive_refuses_a_wrong_time_out_also_where_a_message_is_there(pair: Pair) -> None:
    near, far = pair
    near.send_bytes(b"one")
    assert far.poll(LIMIT)
    calls: list[Callable[[], object]] = [
        lambda: far.recv_bytes(-1),
        lambda: far.recv_bytes(-1, maxlength=8),
        lambda: far.recv_into(bytearray(8), -1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="timeout"):
            call()
    assert far.recv_bytes(LIMIT) == b"one"


def test_a_handler_that_raises_in_a_send_leaves_the_turn_to_the_next(pair: Pair) -> None:
    near, far = pair
    message = pattern(NBYTES)
    for place in itertools.count():
        came = interrupted(place, lambda: near.send_bytes(message, LIMIT), inside(shmnd))
        assert set(received(far)) <= {message}
        near.send_bytes(message, 5)
        assert received(far) == [message]
        if not came:
            break
    assert place > 10
