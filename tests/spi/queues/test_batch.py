# SPDX-License-Identifier: Apache-2.0
"""Requests between a beginning and a submission, shown to the peer together.

Version 1 offers batches to programs; the data plane has them for both versions.
"""

from collections.abc import Callable
from typing import Any

import pytest

from shmnd import CqNotify, Status
from spi.harness import WAIT, contexts, nd_error, statuses, succeeded
from spi.pair import Pair
from spi.remote import Ends

MakePair = Callable[..., Pair]
COUNT = 12


def post(pair: Pair, *, receives: bool = True, nbytes: int = 8) -> Any:
    """A begun batch of Sends of the active end; their buffer at the other one."""
    outgoing, incoming = pair.active.memory(max(nbytes, 1)), pair.passive.memory(max(nbytes, 1))
    outgoing.put(bytes(i & 255 for i in range(nbytes)))
    if receives:
        take(pair, incoming)
    pair.active.qp._begin_batch()
    for number in range(COUNT):
        pair.active.qp.send(outgoing.sge(0, nbytes), number)
    return incoming


def take(pair: Pair, incoming: Any) -> None:
    for number in range(COUNT):
        pair.passive.receiver().receive(incoming.sge(), 100 + number)


def arrived(pair: Pair) -> None:
    """All came, in order, on both sides."""
    received = pair.reap(pair.passive, COUNT)
    assert set(statuses(received)) == {Status.SUCCESS}
    assert contexts(received) == [100 + number for number in range(COUNT)]
    sent = pair.reap(pair.active, COUNT)
    assert set(statuses(sent)) == {Status.SUCCESS}
    assert contexts(sent) == list(range(COUNT))


@pytest.mark.parametrize("nbytes", [0, 8, 900, 2000, 20_000])
@pytest.mark.parametrize("srq", [False, True])
def test_all_arrive_in_order(make_pair: MakePair, nbytes: int, srq: bool) -> None:
    pair = make_pair(srq=srq).connect()
    incoming = post(pair, nbytes=nbytes)
    pair.active.qp._submit_batch()
    arrived(pair)
    assert incoming.get(nbytes) == bytes(i & 255 for i in range(nbytes))


def test_nothing_is_seen_before_it_is_submitted(ends: Ends) -> None:
    connected = ends.pair("two").connect()  # a process that polls shows what its own batches hold
    post(connected)
    for _ in range(200):
        assert connected.passive.gather() == 0
    connected.active.qp._submit_batch()
    arrived(connected)


def test_receives_are_shown_together(ends: Ends) -> None:
    connected = ends.pair("two").connect()
    incoming = connected.passive.memory(8)
    connected.passive.qp._begin_batch()
    take(connected, incoming)
    outgoing = connected.active.memory(8)
    for number in range(COUNT):
        connected.active.qp.send(outgoing.sge(), number)
    for _ in range(200):
        assert connected.active.gather() == 0
    connected.passive.qp._submit_batch()
    assert len(connected.active.reap(COUNT)) == COUNT
    assert len(connected.passive.reap(COUNT)) == COUNT


def test_receives_before_the_connection(pair: Pair) -> None:
    incoming = pair.passive.memory(8)
    pair.passive.qp._begin_batch()
    take(pair, incoming)
    pair.passive.qp._submit_batch()
    pair.connect()
    outgoing = pair.active.memory(8)
    for number in range(COUNT):
        pair.active.qp.send(outgoing.sge(), number)
    arrived(pair)


def test_never_submitted_and_polled(connected: Pair) -> None:
    """A thread that checks a queue waits for the posted requests."""
    post(connected)
    arrived(connected)


def test_never_submitted_and_waited_for(connected: Pair) -> None:
    post(connected)
    sent = connected.active.reap(COUNT)
    assert set(statuses(sent)) == {Status.SUCCESS}
    assert len(connected.passive.reap(COUNT)) == COUNT


def test_never_submitted_and_notified(connected: Pair) -> None:
    notify = connected.active.cq.notify(CqNotify.ANY)
    post(connected)
    notify.result(timeout=WAIT)
    arrived(connected)


@pytest.mark.parametrize("receives", [False, True])
def test_ended_by_a_flush(connected: Pair, receives: bool) -> None:
    incoming = post(connected, receives=receives)
    connected.active.qp.flush()
    sent = connected.reap(connected.active, COUNT)
    assert contexts(sent) == list(range(COUNT))
    assert set(statuses(sent)) == {Status.SUCCESS if receives else Status.CANCELED}
    if not receives:
        take(connected, incoming)
        for number in range(COUNT):
            connected.active.qp.send(None, number)
        connected.active.qp._submit_batch()
        assert len(connected.reap(connected.active, COUNT)) == COUNT
    assert len(connected.reap(connected.passive, COUNT)) == COUNT


@pytest.mark.parametrize("how", ["disconnect", "close"])
@pytest.mark.parametrize("receives", [False, True])
def test_ended_by_its_end(connected: Pair, how: str, receives: bool) -> None:
    """What could be sent was sent, as without a batch."""
    post(connected, receives=receives)
    if how == "close":
        connected.active.qp.close()
    else:
        connected.settle(connected.active.connector.disconnect(), connected.active)
    sent = connected.reap(connected.active, COUNT)
    assert set(statuses(sent)) == {Status.SUCCESS if receives else Status.CANCELED}
    if receives:
        assert set(statuses(connected.reap(connected.passive, COUNT))) == {Status.SUCCESS}


def test_more_than_the_ring_holds(make_pair: MakePair) -> None:
    pair = make_pair(depth=600, cq_depth=2000).connect()
    outgoing, incoming = pair.active.memory(60_000), pair.passive.memory(60_000)
    messages = b"".join(number.to_bytes(2, "little") * 50 for number in range(600))
    outgoing.put(messages)
    for number in range(600):
        pair.passive.qp.receive(incoming.sge(100 * number, 100), number)
    pair.active.qp._begin_batch()
    for number in range(600):
        pair.active.qp.send(outgoing.sge(100 * number, 100), number)
    assert succeeded(pair.reap(pair.passive, 600), 100) == list(range(600))
    assert succeeded(pair.reap(pair.active, 600)) == list(range(600))
    assert incoming.get() == messages


def test_unbalanced_calls_are_harmless(connected: Pair) -> None:
    connected.active.qp._submit_batch()
    connected.active.qp._begin_batch()
    connected.active.qp._begin_batch()
    post(connected)
    connected.active.qp._submit_batch()
    connected.active.qp._submit_batch()
    arrived(connected)
    connected.exchange()


def test_on_a_queue_pair_without_a_connection(pair: Pair) -> None:
    pair.active.qp._begin_batch()
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.qp.send(None)
    pair.active.qp._submit_batch()
    pair.active.qp.flush()
    pair.connect().exchange()
