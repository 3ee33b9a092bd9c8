# SPDX-License-Identifier: Apache-2.0
"""IND2QueuePair: Receive and Flush."""

from collections.abc import Callable
from typing import Any

import pytest

from shmnd import OpFlag, RequestType, Status
from spi.harness import (
    FILL,
    WAIT,
    Buffer,
    contexts,
    final,
    nd_error,
    statuses,
)
from spi.pair import Pair
from spi.queues.queue_pair_kit import MakePair, each_local_fault, ended, too_long, too_many
from spi.remote import Ends


# Receive
def test_receive_success_before_the_connection_and_kept_through_a_refused_attempt(
    pair: Pair,
) -> None:
    sink = pair.active.memory(5)
    pair.active.qp.receive(sink.sge(), "early")
    pair.listen()
    connecting = pair.request()
    pair.offered()
    pair.passive.connector.reject()
    assert final(connecting) == Status.CONNECTION_REFUSED
    assert pair.active.leftover() == []
    connector = pair.passive.new_connector()
    connecting = pair.request()
    pair.passive.listener.get_connection_request(connector).result(timeout=WAIT)
    accepting = connector.accept(pair.passive.qp)
    connecting.result(timeout=WAIT)
    pair.active.connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    source = pair.passive.memory(5)
    source.put(b"early")
    pair.passive.qp.send(source.sge())
    assert statuses(pair.reap(pair.passive)) == [Status.SUCCESS]
    assert contexts(pair.reap(pair.active)) == ["early"]
    assert sink.get() == b"early"


@pytest.mark.parametrize("state", ["A0", "A1", "A2", "A3", "A4"])
def test_receive_success_in_every_state_before_the_end(pair: Pair, state: str) -> None:
    pair.to(state)
    pair.active.qp.receive(None, state)
    assert pair.active.leftover() == []
    pair.active.qp.flush()
    assert contexts(pair.active.reap()) == [state]


@pytest.mark.parametrize("size", [5, 5000, 100_000, 1 << 20])
def test_receive_success_after_a_flush_before_the_connection(pair: Pair, size: int) -> None:
    """The first Receive that the peer may fill is not the first one that was posted."""
    for side in (pair.active, pair.passive):
        for number in range(3):
            side.qp.receive(None, number)
        side.qp.flush()
        assert contexts(side.reap(3)) == [0, 1, 2]
    early = pair.active.memory(size), pair.passive.memory(size)
    for side, sink in zip((pair.active, pair.passive), early, strict=True):
        side.qp.receive(sink.sge(), "early")
    pair.connect()
    data = bytes(i * 7 + (i >> 8) & 0xFF for i in range(size))
    for side, sink in zip((pair.active, pair.passive), early, strict=True):
        other = pair.other(side)
        source, late = other.memory(size), side.memory(size)
        source.put(data)
        side.qp.receive(late.sge(), "late")
        for _ in range(2):
            other.qp.send(source.sge())
        assert statuses(pair.reap(other, 2)) == [Status.SUCCESS] * 2
        received = pair.reap(side, 2)
        assert contexts(received) == ["early", "late"]
        assert [each.bytes_transferred for each in received] == [size] * 2
        assert sink.get() == late.get() == data


def test_receives_that_a_flush_canceled_before_the_connection_are_not_offered(
    make_pair: MakePair,
) -> None:
    pair = make_pair(rnr_timeout=0.1)
    for number in range(3):
        pair.passive.qp.receive(None, number)
    pair.passive.qp.flush()
    assert contexts(pair.passive.reap(3)) == [0, 1, 2]
    pair.connect()
    pair.active.qp.send(None)
    assert statuses(pair.reap(pair.active)) == [Status.IO_TIMEOUT]


def test_only_the_receives_behind_a_flush_before_the_connection_are_offered(
    make_pair: MakePair,
) -> None:
    pair = make_pair(rnr_timeout=0.1)
    for number in range(3):
        pair.passive.qp.receive(None, number)
    pair.passive.qp.flush()
    assert contexts(pair.passive.reap(3)) == [0, 1, 2]
    pair.passive.qp.receive(None, "early")
    pair.connect()
    for number in range(2):
        pair.active.qp.send(None, number)
    ends = pair.reap(pair.active, 2)
    assert statuses(ends) == [Status.SUCCESS, Status.IO_TIMEOUT]


def test_receive_success_of_a_message_shorter_than_its_room(connected: Pair) -> None:
    source, sink = connected.active.memory(10), connected.passive.memory(100)
    source.put(b"0123456789")
    connected.passive.qp.receive(sink.sge())
    connected.active.qp.send(source.sge())
    assert connected.reap(connected.passive)[0].bytes_transferred == 10
    assert sink.get() == b"0123456789" + bytes([FILL]) * 90


def test_receive_connection_invalid_when_locally_disconnected(pair: Pair) -> None:
    pair.to("A6")
    with nd_error(Status.CONNECTION_INVALID, match="receive"):
        pair.active.qp.receive(None)


def test_receive_buffer_overflow_when_longer_than_max_transfer_length(pair: Pair) -> None:
    end = pair.active
    with nd_error(Status.BUFFER_OVERFLOW, match=str(end.info.max_transfer_length)):
        end.qp.receive(too_long(end, end.memory(1)))


def test_receive_no_more_entries_when_depth_is_outstanding(make_pair: MakePair) -> None:
    pair = make_pair(depth=8)
    end = pair.active
    fitted = 0
    with nd_error(Status.NO_MORE_ENTRIES) as caught:
        for fitted in range(1 << 17):
            end.qp.receive(None, fitted)
    assert fitted >= 8
    assert isinstance(caught.value, BlockingIOError)
    end.qp.flush()
    assert contexts(end.reap(fitted)) == list(range(fitted))


def test_receive_no_more_entries_when_flushes_filled_the_completion_queue(
    make_pair: MakePair,
) -> None:
    """Results stay until they are taken: a program that only posts is stopped, and loses none."""
    end = make_pair(depth=8, cq_depth=2).active
    posted = 0
    with nd_error(Status.NO_MORE_ENTRIES, match="completion queue of depth 2 is full"):
        for posted in range(1 << 17):
            end.qp.receive(None, posted)
            if posted % 8 == 7:
                end.qp.flush()
    end.qp.flush()
    assert contexts(end.reap(posted)) == list(range(posted))
    end.qp.receive(None)
    end.qp.receive(None, "room again")


def test_receive_success_again_when_messages_used_them_up_without_a_poll(
    make_pair: MakePair,
) -> None:
    pair = make_pair(passive={"depth": 4}).connect()
    for number in range(0, 32, 4):
        for posted in range(number, number + 4):
            pair.passive.qp.receive(None, posted)
        with nd_error(Status.NO_MORE_ENTRIES):
            pair.passive.qp.receive(None)
        for _ in range(4):
            pair.active.qp.send(None)
        assert statuses(pair.active.reap(4)) == [Status.SUCCESS] * 4
    assert contexts(pair.passive.reap(32)) == list(range(32))


def test_receive_data_overrun_when_more_sge_than_granted(pair: Pair) -> None:
    end = pair.active
    with nd_error(Status.DATA_OVERRUN, match=str(end.info.max_receive_sge + 1)):
        end.qp.receive(too_many(end.memory(4), end.info.max_receive_sge))


def test_receive_invalid_device_request_when_the_queue_pair_has_a_shared_queue(
    make_pair: MakePair,
) -> None:
    pair = make_pair(srq=True)
    with nd_error(Status.INVALID_DEVICE_REQUEST, match="receive"):
        pair.active.qp.receive(None)


def test_receive_completes_success_in_issue_order_with_exact_lengths(connected: Pair) -> None:
    lengths = [0, 1, 63, 64, 65, 4096, 100_000, 3, 0]
    source, sink = connected.active.memory(100_000), connected.passive.memory(100_000)
    for number in range(len(lengths)):
        connected.passive.qp.receive(sink.sge(), number)
    for length in lengths:
        connected.active.qp.send(source.sge(0, length))
    received = connected.reap(connected.passive, len(lengths))
    assert contexts(received) == list(range(len(lengths)))
    assert [c.bytes_transferred for c in received] == lengths
    connected.reap(connected.active, len(lengths))


def test_receive_completes_buffer_overflow_when_the_message_is_larger(connected: Pair) -> None:
    source, sink = connected.active.memory(1024), connected.passive.memory(1023)
    connected.passive.qp.receive(sink.sge(), "small")
    connected.passive.qp.receive(None, "behind")
    connected.active.qp.send(source.sge())
    received = connected.reap(connected.passive, 2)
    assert statuses(received) == [Status.BUFFER_OVERFLOW, Status.CANCELED]
    assert contexts(received) == ["small", "behind"]
    assert [c.bytes_transferred for c in received] == [0, 0]
    assert statuses(connected.reap(connected.active)) == [Status.REMOTE_ERROR]
    ended(connected, connected.passive, connected.active)


@each_local_fault
def test_receive_completes_access_violation_when_an_sge_is_bad(
    connected: Pair, fault: Callable[[Buffer], Any]
) -> None:
    sink = connected.passive.memory(16)
    connected.passive.qp.receive(fault(sink), "bad")
    connected.passive.qp.receive(None, "behind")
    connected.active.qp.send(connected.active.memory(4).sge())
    received = connected.reap(connected.passive, 2)
    assert statuses(received) == [Status.ACCESS_VIOLATION, Status.CANCELED]
    assert contexts(received) == ["bad", "behind"]
    assert sink.get() == bytes([FILL]) * 16
    assert statuses(connected.reap(connected.active)) == [Status.REMOTE_ERROR]


@pytest.mark.parametrize("size", [4, 4000, 100_000])
def test_receive_completes_access_violation_when_local_write_is_not_allowed(
    connected: Pair, size: int
) -> None:
    sink = connected.passive.memory(size, 0)
    connected.passive.qp.receive(sink.sge())
    connected.active.qp.send(connected.active.memory(size).sge())
    assert statuses(connected.reap(connected.passive)) == [Status.ACCESS_VIOLATION]
    assert statuses(connected.reap(connected.active)) == [Status.REMOTE_ERROR]
    assert sink.get() == bytes([FILL]) * size


@pytest.mark.parametrize("size", [4, 100_000])
def test_receive_completes_access_violation_when_its_region_is_deregistered(
    connected: Pair, size: int
) -> None:
    sink = connected.passive.memory(size)
    connected.passive.qp.receive(sink.sge())
    sink.mr.deregister().result(timeout=WAIT)
    connected.active.qp.send(connected.active.memory(size).sge())
    assert statuses(connected.reap(connected.passive)) == [Status.ACCESS_VIOLATION]
    (sent,) = connected.reap(connected.active)
    # A small message is delivered when it met a Receive with room, whose owner then pulls the
    # memory away: the connection ends, but the sender has had its completion.
    assert sent.status in ((Status.REMOTE_ERROR, Status.SUCCESS)[: 1 if size > 1000 else 2])
    assert sink.get() == bytes([FILL]) * size


def test_receive_completes_canceled_when_flushed_before_any_connection(pair: Pair) -> None:
    for number in range(3):
        pair.active.qp.receive(None, number)
    pair.active.qp.flush()
    canceled = pair.active.reap(3)
    assert statuses(canceled) == [Status.CANCELED] * 3
    assert contexts(canceled) == [0, 1, 2]
    assert {c.request_type for c in canceled} == {RequestType.RECEIVE}


def test_receive_completes_canceled_on_both_sides_at_a_disconnect(connected: Pair) -> None:
    for end in (connected.active, connected.passive):
        end.qp.receive(None, "first")
        end.qp.receive(None, "second")
    connected.hang_up(connected.active)
    for end in (connected.active, connected.passive):
        canceled = end.reap(2)
        assert statuses(canceled) == [Status.CANCELED] * 2
        assert contexts(canceled) == ["first", "second"]


@pytest.mark.parametrize("private", [False, True])
def test_receive_completes_canceled_when_the_sender_died_before_its_memory_was_read(
    ends: Ends, kill: Callable[[], int], private: bool
) -> None:
    pair = ends.pair("two", rnr_timeout=120.0).connect()
    end, nbytes = pair.active, 8 << 20
    sink = end.memory(nbytes, private=private)
    end.qp.receive(sink.sge(), "matched")
    end.qp.receive(None, "behind")
    end.qp.send(None, "oldest")
    end.qp.send(None, "next")
    pair.passive.qp.send(pair.passive.memory(nbytes, private=True).sge())
    kill()
    completions = end.reap(4)
    ends_of = {each.request_context: each.status for each in completions}
    assert ends_of == {
        "matched": Status.CANCELED,
        "behind": Status.CANCELED,
        "oldest": Status.IO_TIMEOUT,
        "next": Status.CANCELED,
    }


# Flush
def test_flush_success_receives_arrived_messages_first(connected: Pair) -> None:
    source, sink = connected.active.memory(7), connected.passive.memory(7)
    source.put(b"arrived")
    connected.passive.qp.receive(sink.sge(), "arrived")
    connected.passive.qp.receive(None, "idle")
    connected.active.qp.send(source.sge())
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    connected.passive.qp.flush()
    flushed = connected.passive.reap(2)
    assert contexts(flushed) == ["arrived", "idle"]
    assert statuses(flushed) == [Status.SUCCESS, Status.CANCELED]
    assert sink.get() == b"arrived"


def test_flush_success_cancels_both_queues_and_leaves_the_connection(patient: Pair) -> None:
    end = patient.active
    end.qp.receive(None, "receive")
    end.qp.send(None, "send")
    end.qp.flush()
    completions = end.reap(2)
    assert statuses(completions) == [Status.CANCELED] * 2
    assert sorted(contexts(completions)) == ["receive", "send"]
    patient.exchange()


def test_flush_success_completes_silent_requests_canceled(patient: Pair) -> None:
    end = patient.active
    for number in range(3):
        end.qp.send(None, number, flags=OpFlag.SILENT_SUCCESS)
    end.qp.flush()
    completions = end.leftover()
    assert statuses(completions) == [Status.CANCELED] * 3
    assert contexts(completions) == [0, 1, 2]
    patient.exchange()


def test_flush_success_leaves_other_queue_pairs_alone(pair: Pair) -> None:
    other = pair.active.new_qp(context="other")
    other.receive(None, "stays")
    pair.active.qp.receive(None, "goes")
    pair.active.qp.flush()
    assert contexts(pair.active.reap()) == ["goes"]
    assert pair.active.leftover() == []
    other.flush()
    assert contexts(pair.active.reap()) == ["stays"]


def test_flush_success_with_nothing_posted(pair: Pair) -> None:
    pair.active.qp.flush()
    assert pair.active.leftover() == []
    pair.connect()
    pair.active.qp.flush()
    assert pair.active.leftover() == []
    pair.exchange()


def test_flush_success_keeps_a_message_for_the_next_receive(patient: Pair) -> None:
    sink = patient.passive.memory(8)
    for _ in range(20):
        patient.passive.qp.receive(sink.sge(), "flushed")
        patient.passive.qp.flush()
        assert statuses(patient.passive.reap()) == [Status.CANCELED]
        patient.active.qp.send(patient.active.memory(8).sge(), "sent")
        patient.passive.qp.receive(sink.sge(), "kept")
        assert contexts(patient.reap(patient.passive)) == ["kept"]
        assert statuses(patient.reap(patient.active)) == [Status.SUCCESS]


def test_flush_success_into_a_queue_that_is_not_polled(make_pair: MakePair) -> None:
    pair = make_pair(cq_depth=2)
    for number in range(64):
        pair.active.qp.receive(None, number)
    pair.active.qp.flush()
    assert contexts(pair.active.reap(64)) == list(range(64))
