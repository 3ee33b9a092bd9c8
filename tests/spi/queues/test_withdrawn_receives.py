# SPDX-License-Identifier: Apache-2.0
"""Sends to Receives that a Deregister or a Flush has withdrawn: both ends agree on their end."""

from typing import Any

import pytest

from shmnd import Status
from spi.harness import Buffer, End, contexts, statuses
from spi.pair import Pair


def receive_within(end: End, bad: Buffer, shape: str) -> None:
    """Post a Receive with an element in `bad`."""
    good = end.memory(8)
    elements: dict[str, Any] = {
        "one element": bad.sge(),
        "no bytes": bad.sge(0, 0),
        "the last element": [good.sge(0, 4), bad.sge(0, 4)],
        "the last, without bytes": [good.sge(), bad.sge(0, 0)],
    }
    end.qp.receive(elements[shape], "withdrawn")


def exchange_one(pair: Pair) -> None:
    """Send a message; its sender sees which Receives are posted."""
    pair.active.qp.send(None, "first")
    assert contexts(pair.reap(pair.passive)) == ["first"]
    assert contexts(pair.reap(pair.active)) == ["first"]


def fails(pair: Pair, data: Buffer, size: int) -> None:
    """Send to the Receive whose memory was deregistered."""
    pair.active.qp.send(data.sge(0, size), "sent")
    refused = pair.reap(pair.passive)
    assert (contexts(refused), statuses(refused)) == (["withdrawn"], [Status.ACCESS_VIOLATION])
    assert statuses(pair.reap(pair.active)) == [Status.REMOTE_ERROR]


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("one element", 0),
        ("one element", 8),
        ("no bytes", 0),
        ("the last element", 8),
        ("the last, without bytes", 0),
    ],
)
def test_a_send_fails_with_its_receive_whose_memory_was_deregistered_before(
    connected: Pair, shape: str, size: int, private: bool, seen: bool
) -> None:
    """Whatever of the Receive its sender can see, and also if it has seen it before."""
    passive, data = connected.passive, connected.active.memory(8)
    bad = passive.memory(8, private=private)
    if seen:
        passive.qp.receive(None, "first")
    receive_within(passive, bad, shape)
    if seen:
        exchange_one(connected)
    assert connected.settle(bad.mr.deregister(), passive) == Status.SUCCESS
    fails(connected, data, size)


def test_a_send_before_that_receive_succeeds(connected: Pair) -> None:
    """The sender checks again once, and must then know which Receives are left."""
    passive, data = connected.passive, connected.active.memory(8)
    bad, good = passive.memory(8), passive.memory(8)
    passive.qp.receive(None, "first")
    passive.qp.receive(good.sge(), "good")
    passive.qp.receive(bad.sge(), "withdrawn")
    exchange_one(connected)
    assert connected.settle(bad.mr.deregister(), passive) == Status.SUCCESS
    connected.active.qp.send(data.sge(), "sent")
    assert contexts(connected.reap(passive)) == ["good"]
    assert statuses(connected.reap(connected.active)) == [Status.SUCCESS]
    fails(connected, data, 8)


def test_a_send_waits_when_a_flush_has_canceled_the_receive_that_its_sender_saw(
    patient: Pair,
) -> None:
    passive = patient.passive
    passive.qp.receive(None, "first")
    passive.qp.receive(None, "flushed")
    exchange_one(patient)
    passive.qp.flush()
    assert statuses(patient.reap(passive)) == [Status.CANCELED]
    patient.active.qp.send(None, "sent")
    for _ in range(20):
        assert patient.active.gather() == patient.passive.gather() == 0
    passive.qp.receive(None, "posted later")
    assert contexts(patient.reap(passive)) == ["posted later"]
    assert statuses(patient.reap(patient.active)) == [Status.SUCCESS]
