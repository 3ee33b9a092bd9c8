# SPDX-License-Identifier: Apache-2.0
"""Sends from segments that the receiver has not mapped yet, one after another."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from shmnd import Status
from spi.harness import Buffer, contexts, final, statuses
from spi.pair import Pair
from spi.remote import Ends

IN_FLIGHT = 8
"""So many large Sends are sent at once; one more waits in the backlog."""
SEGMENT = 1 << 20
"""Memory of this length has a segment of its own."""
SIZE = 100_000
PLACED = 5000
"""The sender copies so much into the receive."""


def send_from(pair: Pair, sources: list[Buffer]) -> None:
    """Post a Send from each; then the receives; the sender makes no further call."""
    count = len(sources)
    sink = pair.passive.memory(count * SIZE)
    messages = [bytes([1 + number]) * SIZE for number in range(count)]
    for number, source in enumerate(sources):
        source.put(messages[number], number * SIZE)
        pair.active.qp.send(source.sge(number * SIZE, SIZE), number)
    for number in range(count):
        pair.passive.qp.receive(sink.sge(number * SIZE, SIZE), number)
    received = pair.passive.reap(count)
    assert statuses(received) == [Status.SUCCESS] * count
    assert contexts(received) == list(range(count))
    assert [each.bytes_transferred for each in received] == [SIZE] * count
    for number, message in enumerate(messages):
        assert sink.get(SIZE, number * SIZE) == message


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "sent"])
def test_two_messages_in_a_row_each_need_a_new_segment(
    make_pair: Callable[..., Pair], listed: bool
) -> None:
    """The first is listed, so it leaves the ring as it was: the second asks at the same place."""
    pair = make_pair(depth=2 * IN_FLIGHT, cq_depth=8 * IN_FLIGHT, rnr_timeout=120.0).connect()
    known = pair.active.memory(SEGMENT + IN_FLIGHT * SIZE)
    send_from(pair, [known])
    sent = 1
    for _ in range(3):
        # Made after the receiver has mapped all that was announced before.
        new = pair.active.memory(SEGMENT + IN_FLIGHT * SIZE)
        sources = [*[known] * IN_FLIGHT, new] if listed else [new]
        send_from(pair, sources)
        sent += len(sources)
        send_from(pair, [pair.active.memory(SEGMENT)])
        sent += 1
    assert statuses(pair.active.reap(sent)) == [Status.SUCCESS] * sent


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "released"])
def test_a_receive_may_be_replaced_while_its_segment_is_mapped(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """The Send needs a second segment, though nothing was sent since it needed the first."""
    pair = ends.pair("two", rnr_timeout=120.0).connect()
    source = pair.active.memory(PLACED)
    source.put(b"a" * PLACED)
    broker = pair.active.adapter._engine
    sync, events, held, sinks = broker.sync, dict(broker._TABLE_EVENTS), [], []

    def hold(_: Any, event: Any, fds: list[int]) -> None:
        """As if the broker's announcement had not been read yet."""
        held.append((event, [os.dup(fd) for fd in fds]))

    def post() -> None:
        sinks.append(pair.passive.memory(SEGMENT))
        pair.passive.qp.receive(sinks[-1].sge(0, PLACED), len(sinks))

    def replace() -> None:
        sync()
        while held:
            broker._segment(*held.pop(0))
        if len(sinks) < 4:
            pair.passive.qp.flush()
            if not kept:
                assert final(sinks[-1].mr.deregister()) == Status.SUCCESS
            post()

    monkeypatch.setattr(broker, "_TABLE_EVENTS", events | {"segment": hold}, raising=False)
    monkeypatch.setattr(broker, "sync", replace)
    post()
    pair.active.qp.send(source.sge(), "sent")
    assert statuses(pair.reap(pair.active)) == [Status.SUCCESS]
    received = pair.reap(pair.passive, 4)
    assert contexts(received) == [1, 2, 3, 4]
    assert statuses(received) == [Status.CANCELED] * 3 + [Status.SUCCESS]
    assert sinks[-1].get(PLACED) == b"a" * PLACED
