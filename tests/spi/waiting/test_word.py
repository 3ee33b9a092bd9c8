# SPDX-License-Identifier: Apache-2.0
"""A thread that sleeps at the word of its queue's bell: everything that must wake it does."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shmnd import Status
from spi.harness import WAIT, contexts, wait_until
from spi.pair import Pair
from spi.remote import Ends
from spi.waiting.at_word import (
    asleep,
    ended,
    sleeping_at_the_word,
    waiting,
    waiting_for_a_failure,
)


@pytest.fixture
def pair(ends: Ends) -> Pair:
    return sleeping_at_the_word(ends)


@pytest.fixture
def unconnected(ends: Ends) -> Pair:
    """Two more ends of the same processes, with queues of their own."""
    return ends.pair("two")


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


def test_the_end_of_the_connection_completes_a_notify_disconnect(pair: Pair) -> None:
    """Its peer rings the bell of the queue then, so a client that has one pending sleeps there."""
    end = pair.active
    disconnected = end.connector.notify_disconnect()
    end.qp.receive(None, "flushed")
    got: list[Any] = []
    thread = waiting(end.cq, got)
    pair.passive.connector.disconnect().result(WAIT)
    ended(thread)
    assert [each.status for each in got] == [Status.CANCELED]
    assert disconnected.status == Status.SUCCESS


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
    failures: list[Status] = []
    thread = waiting_for_a_failure(pair.active.cq, failures)
    pair.active.cq.close()
    ended(thread)
    assert failures == [Status.INVALID_HANDLE]


def test_the_end_of_the_connection_wakes_it(pair: Pair) -> None:
    end = pair.active
    end.qp.receive(None, "flushed")
    got: list[Any] = []
    thread = waiting(end.cq, got)
    pair.passive.connector.disconnect().result(WAIT)
    ended(thread)
    assert [each.status for each in got] == [Status.CANCELED]


# -- others of the same process wait, too --


def in_loop(queue: Any, got: list[Any]) -> None:
    async def main() -> None:
        while not got:
            await queue.notify()
            got.extend(queue.get_results(1))

    asyncio.run(asyncio.wait_for(main(), WAIT))


WAYS: dict[str, Callable[[Any, list[Any]], object]] = {
    "thread": lambda queue, got: got.extend(queue.wait(1, WAIT)),
    "Notify": lambda queue, got: got.append(queue.notify().result(WAIT)),
    "Notify that is only pending": lambda queue, got: got.append(queue.notify()),
    "descriptor": lambda queue, got: got.append(queue.fileno()),
    "loop": in_loop,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_thread_sleeps_elsewhere_when_another_one_needs_rings(pair: Pair, way: str) -> None:
    """The queue has one word that says how its peers ring: theirs would not reach the other one."""
    end = pair.active
    for number in range(2):
        end.qp.receive(None, number)
    got: list[Any] = []
    first = waiting(end.cq, got)
    got_too: list[Any] = []
    second = threading.Thread(target=WAYS[way], args=(end.cq, got_too))
    second.start()
    wait_until(lambda: not asleep(end.cq), "it sleeps elsewhere")
    for _ in range(2):
        pair.passive.qp.send(None)
    ended(first)
    ended(second)
    assert len(got) == len(got_too) == 1


@pytest.mark.parametrize("way", ["thread", "Notify", "loop"])
@pytest.mark.parametrize("first", ["at the word", "elsewhere"])
def test_one_that_waits_for_another_queue_is_woken(
    pair: Pair, unconnected: Pair, way: str, first: str
) -> None:
    """Whichever message comes first, and also where that queue is connected meanwhile."""
    got: list[Any] = []
    got_elsewhere: list[Any] = []
    pair.active.qp.receive(None, "word")
    thread = waiting(pair.active.cq, got)
    other = unconnected.connect()
    other.active.qp.receive(None, "elsewhere")
    second = threading.Thread(target=WAYS[way], args=(other.active.cq, got_elsewhere))
    second.start()
    wait_until(lambda: other.active.cq._attended, "the other one waits")
    if first == "at the word":
        pair.passive.qp.send(None)
        ended(thread)
    other.passive.qp.send(None)
    ended(second)
    assert got_elsewhere
    if first == "elsewhere":
        pair.passive.qp.send(None)
        ended(thread)
    assert contexts(got) == ["word"]


def test_a_thread_sleeps_elsewhere_while_another_one_sleeps_for_something_else(pair: Pair) -> None:
    """What that waits for, a sample perhaps, comes by a doorbell."""
    got: list[Any] = []
    found: list[bool] = []
    pair.active.qp.receive(None, "word")
    first = waiting(pair.active.cq, got)
    engine = pair.active.adapter._engine
    second = threading.Thread(target=lambda: engine.wait(lambda: bool(found), WAIT))
    second.start()
    wait_until(lambda: not asleep(pair.active.cq), "it sleeps elsewhere")
    found.append(True)
    engine.ring()
    ended(second)
    pair.passive.qp.send(None)
    ended(first)
    assert contexts(got) == ["word"]


def test_an_operation_that_is_posted_meanwhile_is_completed(pair: Pair, unconnected: Pair) -> None:
    """No thread waits for it, and the one that sleeps takes the messages of the broker."""
    got: list[Any] = []
    pair.active.qp.receive(None, "word")
    thread = waiting(pair.active.cq, got)
    unconnected.listen()
    connecting = unconnected.request()
    unconnected.offered()
    unconnected.passive.connector.accept(unconnected.passive.qp, *unconnected.limits)
    wait_until(lambda: connecting.status == Status.SUCCESS, "the Connect is complete")
    pair.passive.qp.send(None)
    ended(thread)
    assert contexts(got) == ["word"]


def test_a_thread_sleeps_elsewhere_where_another_queue_receives(
    pair: Pair, unconnected: Pair
) -> None:
    """A large message there needs calls of its receiver, for which its sender rings a doorbell."""
    other = unconnected.connect()
    length = 4 << 20
    sink = other.active.memory(length, private=True)
    source = other.passive.memory(length, private=True)
    got: list[Any] = []
    pair.active.qp.receive(None, "word")
    thread = threading.Thread(target=lambda: got.extend(pair.active.cq.wait(1, WAIT)))
    thread.start()
    wait_until(lambda: pair.active.cq._attended, "a thread waits")
    for number in range(4):
        other.active.qp.receive(sink.sge(), number)
    for number in range(4):
        other.passive.qp.send(source.sge(), number)
    wait_until(lambda: other.passive.gather() == 4, "the Sends are complete")
    assert not asleep(pair.active.cq)
    pair.passive.qp.send(None)
    ended(thread)
    assert contexts(got) == ["word"]


def test_a_request_of_another_queue_makes_progress(ends: Ends, pair: Pair) -> None:
    """Its thread posts and then computes: the one that sleeps carries the Send on."""
    split = ends.pair("two", active={"separate_cqs": True}).connect()
    end = split.active
    end.receive_cq.spin = 0.0
    pair.active.qp.close()  # its queue receives no more
    end.qp.receive(None, "word")
    got: list[Any] = []
    thread = waiting(end.receive_cq, got)
    end.qp.send(None, "no Receive yet")
    wait_until(lambda: not asleep(end.receive_cq), "it sleeps elsewhere")
    split.passive.qp.receive(None)
    wait_until(lambda: end.cq._queued == 1, "the Send is complete without a poll of its queue")
    split.passive.qp.send(None)
    ended(thread)
    assert contexts(got) == ["word"]


def test_a_ring_for_all_threads_wakes_it(pair: Pair) -> None:
    failures: list[Status] = []
    thread = waiting_for_a_failure(pair.active.cq, failures)
    engine = pair.active.adapter._engine
    for wake in (engine.ring, engine._wait_set.news):
        wait_until(lambda: asleep(pair.active.cq), "it sleeps at the word again")
        time.sleep(0.02)
        polls = pair.active.cq._polls
        wake()
        wait_until(lambda: pair.active.cq._polls > polls, "it is awake")  # noqa: B023
    pair.active.cq.close()
    ended(thread)
    assert failures == [Status.INVALID_HANDLE]
