# SPDX-License-Identifier: Apache-2.0
"""A thread that sleeps at the word of its queue's bell: everything that must wake it does.

The sleep there ends by itself after 10 ms. Here it does not: a lost wake-up is a failure.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmnd
from interrupting import Alarm
from shmnd import Status
from shmnd.ring.queues.completion_queue import set_longest_at_word
from spi.harness import WAIT, wait_until
from spi.pair import Pair
from spi.remote import Ends

USUAL = 0.01


@pytest.fixture
def pair(ends: Ends) -> Iterator[Pair]:
    pair = ends.pair("one").connect()
    pair.active.cq.spin = 0.0
    set_longest_at_word(3600.0)
    yield pair
    set_longest_at_word(USUAL)


def asleep(queue: Any) -> bool:
    """Return whether a thread sleeps at the word of a queue, or just before that."""
    return bool(queue._at_word)


def waiting(queue: Any, got: list[Any], count: int = 1) -> threading.Thread:
    """Begin to wait in a thread, which sleeps at the word when this returns."""

    def run() -> None:
        got.extend(queue.wait(count, WAIT))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: asleep(queue), "a thread sleeps at the word")
    time.sleep(0.02)  # until it sleeps; nothing that follows depends on it
    return thread


def ended(thread: threading.Thread) -> None:
    thread.join(WAIT)
    assert not thread.is_alive(), "the thread sleeps on"


def contexts(results: list[Any]) -> list[object]:
    return [each.request_context for each in results]


def test_a_message_wakes_it_without_a_byte_in_a_doorbell(pair: Pair) -> None:
    end = pair.active
    wait_set = end.adapter._engine._wait_set
    for number in range(20):
        end.qp.receive(None, number)
        wait_set.ready()
        got: list[Any] = []
        thread = waiting(end.cq, got)
        pair.passive.qp.send(None)
        ended(thread)
        assert contexts(got) == [number]
        assert not wait_set.ready()[0], "its doorbell was rung, too"


def test_a_request_of_another_thread_that_completes_wakes_it(pair: Pair) -> None:
    end = pair.active
    pair.passive.qp.receive(None)
    got: list[Any] = []
    thread = waiting(end.cq, got)
    end.qp.send(None, context="own")
    pair.passive.cq.wait(1, WAIT)
    ended(thread)
    assert contexts(got) == ["own"]


def test_a_close_wakes_it(pair: Pair) -> None:
    got: list[Any] = []
    failures: list[Status] = []

    def run() -> None:
        try:
            pair.active.cq.wait(1, WAIT)
        except shmnd.NdError as exc:
            failures.append(exc.status)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: asleep(pair.active.cq), "a thread sleeps at the word")
    pair.active.cq.close()
    ended(thread)
    assert failures == [Status.INVALID_HANDLE]
    assert not got


def test_the_end_of_the_connection_wakes_it(pair: Pair) -> None:
    end = pair.active
    end.qp.receive(None, "flushed")
    got: list[Any] = []
    thread = waiting(end.cq, got)
    pair.passive.connector.disconnect().result(WAIT)
    ended(thread)
    assert [each.status for each in got] == [Status.CANCELED]


OTHERS: dict[str, Callable[[Pair, list[Any]], object]] = {
    "thread": lambda pair, got: got.extend(pair.active.cq.wait(1, WAIT)),
    "Notify": lambda pair, got: got.append(pair.active.cq.notify().result(WAIT)),
    "descriptor": lambda pair, got: got.append(pair.active.cq.fileno()),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_it_sleeps_elsewhere_when_another_one_needs_rings(pair: Pair, kind: str) -> None:
    """The queue has one word that says how its peers ring: theirs would not reach the other one."""
    end = pair.active
    for number in range(2):
        end.qp.receive(None, number)
    got: list[Any] = []
    first = waiting(end.cq, got)
    other = threading.Thread(target=OTHERS[kind], args=(pair, got))
    other.start()
    wait_until(lambda: not asleep(end.cq), "it sleeps elsewhere")
    for _ in range(2):
        pair.passive.qp.send(None)
    ended(first)
    ended(other)
    assert len(got) == 2


def test_a_time_out_ends_it(pair: Pair) -> None:
    began = time.monotonic()
    assert pair.active.cq.wait(1, 0.05) == []
    assert 0.05 <= time.monotonic() - began < WAIT


def test_a_handler_that_raises_ends_it(pair: Pair) -> None:
    def handle(number: int, frame: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handle)

    def act() -> None:
        wait_until(lambda: asleep(pair.active.cq), "it sleeps at the word")
        time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        with pytest.raises(Alarm):
            pair.active.cq.wait(1, WAIT)
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join(WAIT)
    pair.active.qp.receive(None, "after")
    pair.passive.qp.send(None)
    assert contexts(pair.active.cq.wait(1, WAIT)) == ["after"]
