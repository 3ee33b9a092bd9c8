# SPDX-License-Identifier: Apache-2.0
"""IND2QueuePair: Send."""

from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from shmnd import OpFlag, RequestType, Sge, Status
from spi import roles
from spi.harness import (
    FILL,
    REMOTE,
    WAIT,
    Buffer,
    contexts,
    final,
    nd_error,
    statuses,
    succeeded,
)
from spi.pair import Pair
from spi.queues.queue_pair_kit import (
    SIZES,
    MakePair,
    each_local_fault,
    ended,
    pattern,
    post,
    saw_the_end,
    too_long,
    too_many,
    watched,
)
from spi.remote import Ends


# Send
@pytest.mark.parametrize("size", SIZES)
def test_send_success_delivers_every_byte(connected: Pair, size: int) -> None:
    source, sink = connected.active.memory(size + 1), connected.passive.memory(size + 1)
    source.put(pattern(size))
    connected.passive.qp.receive(sink.sge(), 17)
    connected.active.qp.send(source.sge(0, size), 18)
    (sent,) = connected.active.reap()
    assert (sent.status, sent.request_type) == (Status.SUCCESS, RequestType.SEND)
    assert sent.request_context == 18
    (received,) = connected.passive.reap()
    assert (received.status, received.request_type) == (Status.SUCCESS, RequestType.RECEIVE)
    assert (received.request_context, received.bytes_transferred) == (17, size)
    assert sink.get(size) == pattern(size)
    assert sink.get(1, size) == bytes([FILL]), "no byte beyond the message is touched"


@pytest.mark.parametrize("size", [1, 48, 5000, 300_000])
@pytest.mark.parametrize("private", ["source", "sink", "both"])
def test_send_success_with_private_memory(connected: Pair, size: int, private: str) -> None:
    source = connected.active.memory(size, private=private != "sink")
    sink = connected.passive.memory(size, private=private != "source")
    source.put(pattern(size))
    connected.passive.qp.receive(sink.sge())
    connected.active.qp.send(source.sge())
    assert statuses(connected.reap(connected.active)) == [Status.SUCCESS]
    assert connected.reap(connected.passive)[0].bytes_transferred == size
    assert sink.get() == pattern(size)


@pytest.mark.parametrize("size", [65_472, 600_000])
@pytest.mark.parametrize("source_first", ["private", "shared"])
@pytest.mark.parametrize("sink_first", ["private", "shared"])
def test_send_success_of_a_list_of_private_and_shared_memory(
    connected: Pair, size: int, source_first: str, sink_first: str
) -> None:
    """A header of 64 bytes and a payload, one in private memory and the other in a segment."""
    ends = ((connected.active, source_first), (connected.passive, sink_first))
    source, sink = (
        [
            end.memory(64, private=first == "private"),
            end.memory(size, private=first != "private"),
        ]
        for end, first in ends
    )
    source[0].put(pattern(64))
    source[1].put(pattern(size))
    connected.passive.qp.receive([part.sge() for part in sink])
    connected.active.qp.send([part.sge() for part in source])
    assert statuses(connected.reap(connected.active)) == [Status.SUCCESS]
    assert connected.reap(connected.passive)[0].bytes_transferred == 64 + size
    assert (sink[0].get(), sink[1].get()) == (pattern(64), pattern(size))


def test_send_success_gathers_and_scatters_in_order(connected: Pair) -> None:
    source, sink = connected.active.memory(64), connected.passive.memory(64)
    source.put(b"onetwothreefour")
    pieces = [(11, 4), (0, 3), (6, 5), (3, 3)]
    connected.passive.qp.receive([sink.sge(40, 2), sink.sge(0, 7), sink.sge(20, 10)])
    connected.active.qp.send([source.sge(*piece) for piece in pieces])
    assert statuses(connected.reap(connected.active)) == [Status.SUCCESS]
    assert connected.reap(connected.passive)[0].bytes_transferred == 15
    whole = sink.get(2, 40) + sink.get(7, 0) + sink.get(6, 20)
    assert whole == b"fouronethreetwo"
    assert sink.get(4, 26) == bytes([FILL]) * 4


@pytest.mark.parametrize("sge", [None, (), []])
def test_send_success_of_zero_bytes_consumes_one_receive(connected: Pair, sge: Any) -> None:
    sink = connected.passive.memory(8)
    connected.passive.qp.receive(sink.sge(), "first")
    connected.passive.qp.receive(sink.sge(), "second")
    connected.active.qp.send(sge)
    assert statuses(connected.reap(connected.active)) == [Status.SUCCESS]
    (received,) = connected.reap(connected.passive)
    assert (received.request_context, received.bytes_transferred) == ("first", 0)
    assert sink.get() == bytes([FILL]) * 8
    assert connected.passive.leftover() == []


@pytest.mark.active_end_here
def test_send_success_returns_contexts_identical(ends: Ends, mode: str) -> None:
    request, receive, queue_pair = object(), ["receive"], {"queue": "pair"}
    pair = ends.pair(mode, active={"context": queue_pair}).connect()
    assert pair.active.qp.context is queue_pair
    pair.passive.qp.receive(None)
    pair.active.qp.send(None, request)
    (sent,) = pair.reap(pair.active)
    assert sent.request_context is request
    assert sent.queue_pair_context is queue_pair
    pair.active.qp.receive(None, receive)
    pair.passive.qp.send(None)
    (received,) = pair.reap(pair.active)
    assert received.request_context is receive
    assert received.queue_pair_context is queue_pair


def test_send_success_without_a_context_returns_none(connected: Pair) -> None:
    connected.passive.qp.receive(None)
    connected.active.qp.send(None)
    assert contexts(connected.reap(connected.active)) == [None]
    assert contexts(connected.reap(connected.passive)) == [None]


@pytest.mark.parametrize("size", [8, 3000, 100_000])
def test_send_success_keeps_the_order_of_many(connected: Pair, size: int) -> None:
    rounds, batch = 10, 16
    source, sink = connected.active.memory(size), connected.passive.memory(size * batch)
    for turn in range(rounds):
        numbers = range(turn * batch, (turn + 1) * batch)
        for number in numbers:
            connected.passive.qp.receive(sink.sge((number % batch) * size, size), number)
        for number in numbers:
            source.put(number.to_bytes(8, "little") * (size // 8))
            connected.active.qp.send(source.sge(), number)
            assert succeeded(connected.reap(connected.active)) == [number]
        assert succeeded(connected.reap(connected.passive, batch), size) == list(numbers)
        for number in numbers:
            got = sink.get(size, (number % batch) * size)
            assert got == number.to_bytes(8, "little") * (size // 8)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("size", [5, 600, 5000, 100_000, 3 << 20])
def test_send_success_waits_for_a_receive_that_is_posted_late(
    patient: Pair, size: int, private: bool
) -> None:
    source = patient.active.memory(3 * size, private=private)
    sink = patient.passive.memory(size, private=private)
    messages = [(f"{number}. later " * size).encode()[:size] for number in range(3)]
    for number in range(3):
        source.put(messages[number], number * size)
        patient.active.qp.send(source.sge(number * size, size), number)
    assert patient.active.leftover() == []
    for number in range(3):
        patient.passive.qp.receive(sink.sge(), 100 + number)
        assert succeeded(patient.reap(patient.passive), size) == [100 + number]
        assert succeeded(patient.reap(patient.active)) == [number]
        assert sink.get() == messages[number]


def test_send_success_when_completions_are_not_retrieved(make_pair: MakePair) -> None:
    pair = make_pair(active={"depth": 4}).connect()
    for number in range(32):
        pair.passive.qp.receive(None, number)
    for number in range(32):
        pair.active.qp.send(None, number)
    assert succeeded(pair.reap(pair.active, 32)) == list(range(32))
    assert succeeded(pair.reap(pair.passive, 32)) == list(range(32))


def test_send_success_of_the_passive_side_before_the_active_one(connected: Pair) -> None:
    connected.active.qp.receive(None, "mine")
    connected.passive.qp.send(None, "yours")
    assert contexts(connected.reap(connected.passive)) == ["yours"]
    assert contexts(connected.reap(connected.active)) == ["mine"]


@pytest.mark.parametrize("size", [16, 48, 100, 200_000])
def test_send_success_needs_no_call_of_the_target(connected: Pair, size: int) -> None:
    source, sink = connected.active.memory(size), connected.passive.memory(size)
    source.put(pattern(size))
    connected.passive.qp.receive(sink.sge())
    connected.active.qp.send(source.sge())
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    assert statuses(connected.passive.reap()) == [Status.SUCCESS]
    assert sink.get() == pattern(size)


@pytest.mark.parametrize("count", [1, 3])
def test_send_success_needs_no_call_of_a_target_that_posted_before_it_connected(
    pair: Pair, count: int
) -> None:
    source, sink = pair.active.memory(16), pair.passive.memory(16 * count)
    for number in range(count):
        pair.passive.qp.receive(sink.sge(16 * number, 16), number)
    pair.connect()
    for number in range(count):
        pair.active.qp.send(source.sge(), number)
    assert succeeded(pair.active.reap(count), 16) == list(range(count))
    assert succeeded(pair.passive.reap(count), 16) == list(range(count))


def test_send_success_both_ways_at_once_when_each_waits_only_for_its_own(
    connected: Pair,
) -> None:
    size = 1 << 20
    both = (connected.active, connected.passive)
    sources = [end.memory(size) for end in both]
    sinks = [end.memory(size) for end in both]
    for number, source in enumerate(sources):
        source.put(bytes([number + 1]) * size)
    for end, sink in zip(both, sinks, strict=True):
        end.qp.receive(sink.sge(), "received")
    for end, source in zip(both, sources, strict=True):
        end.qp.send(source.sge(), "sent")
    for end in both:
        assert sorted(contexts(connected.reap(end, 2))) == ["received", "sent"]
    assert sinks[0].get() == bytes([2]) * size
    assert sinks[1].get() == bytes([1]) * size


def test_send_success_when_the_sge_limit_is_two_or_more_than_asked(make_pair: MakePair) -> None:
    pair = make_pair(sge=1).connect()
    source, sink = pair.active.memory(2), pair.passive.memory(2)
    source.put(b"ab")
    pair.passive.qp.receive([sink.sge(0, 1), sink.sge(1, 1)])
    pair.active.qp.send([source.sge(0, 1), source.sge(1, 1)])
    assert statuses(pair.reap(pair.active)) == [Status.SUCCESS]
    assert statuses(pair.reap(pair.passive)) == [Status.SUCCESS]
    assert sink.get() == b"ab"


def test_send_success_inline_captures_the_data_during_the_call(make_pair: MakePair) -> None:
    pair = make_pair(inline=64, rnr_timeout=120.0).connect()
    source, sink = pair.active.memory(64), pair.passive.memory(64)
    source.put(pattern(64))
    pair.active.qp.send(source.sge(), flags=OpFlag.INLINE)
    source.put(bytes(64))
    pair.passive.qp.receive(sink.sge())
    assert statuses(pair.reap(pair.active)) == [Status.SUCCESS]
    assert pair.reap(pair.passive)[0].bytes_transferred == 64
    assert sink.get() == pattern(64)


@pytest.mark.active_end_here
def test_send_success_inline_ignores_token_registration_and_sge_limit(make_pair: MakePair) -> None:
    pair = make_pair(inline=64).connect()
    plain = bytearray(b"never registered")
    count = len(plain)
    assert count > 4, "more entries than were asked for"
    sink = pair.passive.memory(64)
    pair.passive.qp.receive(sink.sge())
    view = memoryview(plain)
    entries = [shmnd.Sge(view[i : i + 1], 1, 0xFFFFFFFE) for i in range(count)]
    entries += [shmnd.Sge(view[:1], 1, 0xFFFFFFFE)] * (64 - count)
    pair.active.qp.send(entries, flags=OpFlag.INLINE)
    assert statuses(pair.reap(pair.active)) == [Status.SUCCESS]
    assert pair.reap(pair.passive)[0].bytes_transferred == 64
    assert sink.get() == b"never registered" + b"n" * (64 - count)


def test_send_success_silent_makes_no_completion(connected: Pair) -> None:
    for number in range(3):
        connected.passive.qp.receive(None, number)
    connected.active.qp.send(None, "silent", flags=OpFlag.SILENT_SUCCESS)
    connected.active.qp.send(None, "silent", flags=OpFlag.SILENT_SUCCESS)
    connected.active.qp.send(None, "loud")
    assert contexts(connected.reap(connected.active)) == ["loud"]
    assert len(connected.reap(connected.passive, 3)) == 3
    assert connected.active.leftover() == []


def test_send_success_silent_frees_its_entry(make_pair: MakePair) -> None:
    pair = make_pair(active={"depth": 4}).connect()
    for number in range(40):
        pair.passive.qp.receive(None, number)
    for _ in range(39):
        pair.active.qp.send(None, "silent", flags=OpFlag.SILENT_SUCCESS)
    pair.active.qp.send(None, "last")
    assert succeeded(pair.reap(pair.active)) == ["last"]
    assert succeeded(pair.reap(pair.passive, 40)) == list(range(40))


def test_send_success_with_a_read_fence(connected: Pair) -> None:
    source, sink = connected.passive.memory(8, REMOTE), connected.active.memory(8)
    source.put(b"12345678")
    connected.passive.qp.receive(None)
    connected.active.qp.read(sink.sge(), source.address, source.remote_token, "read")
    connected.active.qp.send(None, "fenced", flags=OpFlag.READ_FENCE)
    assert succeeded(connected.reap(connected.active, 2)) == ["read", "fenced"]
    assert sink.get() == b"12345678"


def test_send_connection_invalid_when_never_connected(pair: Pair) -> None:
    with nd_error(Status.CONNECTION_INVALID, match="send"):
        pair.active.qp.send(None)


def test_send_buffer_overflow_when_longer_than_max_transfer_length(connected: Pair) -> None:
    end = connected.active
    limit = end.info.max_transfer_length
    with nd_error(Status.BUFFER_OVERFLOW, match=str(limit)) as caught:
        end.qp.send(too_long(end, end.memory(1)))
    assert isinstance(caught.value, BufferError)
    assert str(limit + 1) in str(caught.value)
    connected.exchange()


def test_send_buffer_overflow_when_inline_is_longer_than_granted(make_pair: MakePair) -> None:
    pair = make_pair(inline=16).connect()
    end = pair.active
    buffer = end.memory(end.info.max_inline_data_size + 1)
    with nd_error(Status.BUFFER_OVERFLOW):
        end.qp.send(buffer.sge(), flags=OpFlag.INLINE)
    pair.exchange()


@pytest.mark.active_end_here
def test_send_buffer_overflow_when_an_inline_list_is_longer_than_granted(
    make_pair: MakePair,
) -> None:
    pair = make_pair(inline=16).connect()
    nowhere, last = shmnd.Sge(16, 1, 0), shmnd.Sge(bytearray(2000), 2000, 0)
    for entries in ([nowhere] * 16 + [last], [nowhere] * 17):
        with nd_error(Status.BUFFER_OVERFLOW, match=f"{sum(s.length for s in entries)} bytes"):
            pair.active.qp.send(entries, flags=OpFlag.INLINE)
    pair.exchange()


def test_send_no_more_entries_when_depth_is_outstanding(make_pair: MakePair) -> None:
    pair = make_pair(depth=8, rnr_timeout=120.0).connect()
    fitted = pair.active.fill_initiator_queue()
    assert fitted >= 8
    for number in range(fitted):
        with nd_error(Status.NO_MORE_ENTRIES):
            pair.active.qp.send(None, "one too many")
        pair.passive.qp.receive(None)
        assert contexts(pair.reap(pair.active)) == [number]
        pair.active.qp.send(None, fitted + number)
    pair.active.qp.flush()
    assert contexts(pair.active.reap(fitted)) == list(range(fitted, 2 * fitted))


@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_success_again_when_earlier_requests_completed_without_a_poll(
    make_pair: MakePair, request_name: str
) -> None:
    pair = make_pair(rnr_timeout=120.0, active={"depth": 4}).connect()
    end, other = pair.active, pair.passive
    buffer = end.memory(16)
    for number in range(4):
        end.qp.send(None, number)
    with nd_error(Status.NO_MORE_ENTRIES):
        post(end, request_name, buffer)
    for number in range(5):
        other.qp.receive(other.memory(16).sge(), number)
    assert succeeded(other.reap(4)) == [0, 1, 2, 3]
    post(end, request_name, buffer, context="one more")
    assert contexts(ended := end.reap(5)) == [0, 1, 2, 3, "one more"]
    assert statuses(ended[:4]) == [Status.SUCCESS] * 4


def test_send_data_overrun_when_more_sge_than_granted(connected: Pair) -> None:
    end = connected.active
    limit = end.info.max_initiator_sge
    with nd_error(Status.DATA_OVERRUN, match=str(limit + 1)) as caught:
        end.qp.send(too_many(end.memory(4), limit))
    assert isinstance(caught.value, BufferError)
    connected.exchange()


@pytest.mark.parametrize("flags", [0x08, 0x10, 0x40, 0x80000000, 0xFFFFFFFF])
def test_send_invalid_parameter_4_when_flags_are_unknown(connected: Pair, flags: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_4, match=r"(?i)send.*flags") as caught:
        connected.active.qp.send(None, flags=flags)
    assert f"{flags:x}" in str(caught.value).lower() or str(flags) in str(caught.value)
    connected.exchange()


def test_send_completes_success_before_the_answer_of_the_peer(connected: Pair) -> None:
    rounds = 200
    answers, _ = connected.play(roles.ask, roles.answer, (rounds,), (rounds,))
    assert answers == [RequestType.SEND, RequestType.RECEIVE] * rounds


@pytest.mark.parametrize("size", [0, 40, 4000, 400_000])
def test_send_completes_success_when_the_sender_disconnects_at_once(
    connected: Pair, size: int
) -> None:
    source, sink = connected.active.memory(size + 1), connected.passive.memory(size + 1)
    source.put(pattern(size))
    connected.passive.qp.receive(sink.sge(), "delivered")
    connected.passive.qp.receive(None, "unused")
    connected.active.qp.send(source.sge(0, size), "sent")
    connected.active.connector.disconnect().result(timeout=WAIT)
    (sent,) = connected.active.reap()
    assert (sent.request_context, sent.status) == ("sent", Status.SUCCESS)
    received = connected.passive.reap(2)
    assert statuses(received) == [Status.SUCCESS, Status.CANCELED]
    assert contexts(received) == ["delivered", "unused"]
    assert received[0].bytes_transferred == size
    assert sink.get(size) == pattern(size)


@pytest.mark.parametrize("size", [0, 40, 4000, 400_000])
def test_send_completes_success_when_the_receiver_disconnects_at_once(
    connected: Pair, size: int
) -> None:
    source, sink = connected.active.memory(size + 1), connected.passive.memory(size + 1)
    source.put(pattern(size))
    connected.passive.qp.receive(sink.sge(), "delivered")
    connected.active.qp.send(source.sge(0, size), "sent")
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    connected.passive.connector.disconnect().result(timeout=WAIT)
    (received,) = connected.passive.reap()
    assert (received.status, received.bytes_transferred) == (Status.SUCCESS, size)
    assert sink.get(size) == pattern(size)


@each_local_fault
def test_send_completes_access_violation_when_an_sge_is_bad(
    connected: Pair, fault: Callable[[Buffer], Any]
) -> None:
    end, other = connected.active, connected.passive
    notice = watched(other)
    end.qp.send([end.memory(4).sge(), fault(end.memory(16))], "bad")
    end.qp.send(None, "behind")
    completions = connected.reap(end, 2)
    assert statuses(completions) == [Status.ACCESS_VIOLATION, Status.CANCELED]
    assert contexts(completions) == ["bad", "behind"]
    saw_the_end(connected, other, notice)
    ended(connected, end, other)


@pytest.mark.active_end_here
def test_send_that_fails_ends_the_connection_without_a_further_call(connected: Pair) -> None:
    """The peer learns of it from the call that posted the Send."""
    sink = connected.passive.memory(8)
    connected.passive.qp.receive(sink.sge(), "never filled")
    connected.active.qp.send(Sge(4096, 8, 1), "bad")
    ended = connected.passive.reap()
    assert (contexts(ended), statuses(ended)) == (["never filled"], [Status.CANCELED])
    assert statuses(connected.active.reap()) == [Status.ACCESS_VIOLATION]


def test_send_completes_access_violation_when_the_region_was_deregistered(
    connected: Pair,
) -> None:
    end = connected.active
    buffer = end.memory(16)
    stale = buffer.sge()
    buffer.mr.deregister().result(timeout=WAIT)
    notice = watched(connected.passive)
    end.qp.send(stale)
    assert statuses(connected.reap(end)) == [Status.ACCESS_VIOLATION]
    saw_the_end(connected, connected.passive, notice)


@pytest.mark.parametrize("size", [4000, 100_000, 1 << 20])
@pytest.mark.parametrize("private", [False, True])
def test_send_completes_access_violation_when_the_region_is_deregistered_meanwhile(
    patient: Pair, size: int, private: bool
) -> None:
    buffer = patient.active.memory(size, private=private)
    patient.active.qp.send(buffer.sge(), "pulled away")
    buffer.mr.deregister().result(timeout=WAIT)
    buffer.put(bytes(size))
    sink = patient.passive.memory(size)
    patient.passive.qp.receive(sink.sge(), "unserved")
    (completion,) = patient.reap(patient.active)
    assert completion.request_context == "pulled away"
    assert completion.status == Status.ACCESS_VIOLATION
    assert statuses(patient.reap(patient.passive)) == [Status.CANCELED]
    assert sink.get() == bytes([FILL]) * size


def test_send_completes_canceled_when_flushed(patient: Pair) -> None:
    for number in range(3):
        patient.active.qp.send(None, number)
    patient.active.qp.flush()
    canceled = patient.active.reap(3)
    assert statuses(canceled) == [Status.CANCELED] * 3
    assert contexts(canceled) == [0, 1, 2]
    patient.exchange()


@pytest.mark.parametrize("size", [8, 100_000])
def test_send_completes_canceled_when_its_side_disconnects(patient: Pair, size: int) -> None:
    source = patient.active.memory(size)
    patient.active.qp.send(source.sge(), "waiting")
    patient.active.connector.disconnect().result(timeout=WAIT)
    (completion,) = patient.active.reap()
    assert (completion.status, completion.request_context) == (Status.CANCELED, "waiting")


@pytest.mark.parametrize("size", [8, 100_000])
def test_send_completes_canceled_when_the_peer_disconnects(patient: Pair, size: int) -> None:
    source = patient.active.memory(size)
    patient.active.qp.send(source.sge(), "waiting")
    patient.hang_up(patient.passive)
    (completion,) = patient.active.reap()
    assert (completion.status, completion.request_context) == (Status.CANCELED, "waiting")


def test_send_completes_io_timeout_when_no_receive_is_posted(impatient: Pair) -> None:
    notice = impatient.passive.connector.notify_disconnect()
    impatient.active.qp.send(None, "unreceived")
    impatient.active.qp.send(None, "behind")
    completions = impatient.reap(impatient.active, 2)
    assert statuses(completions) == [Status.IO_TIMEOUT, Status.CANCELED]
    assert contexts(completions) == ["unreceived", "behind"]
    assert impatient.settle(notice, impatient.passive) == Status.SUCCESS
    assert impatient.passive.leftover() == []


def test_send_completes_io_timeout_when_the_process_of_the_peer_dies(
    ends: Ends, kill: Callable[[], int]
) -> None:
    pair = ends.pair("two", rnr_timeout=120.0).connect()
    notice = pair.active.connector.notify_disconnect()
    pair.active.qp.receive(None, "receive")
    for number in range(3):
        pair.active.qp.send(None, number)
    kill()
    completions = pair.active.reap(4)
    initiator = [c for c in completions if c.request_type == RequestType.SEND]
    assert contexts(initiator) == [0, 1, 2]
    assert statuses(initiator) == [Status.IO_TIMEOUT, Status.CANCELED, Status.CANCELED]
    (receive,) = [c for c in completions if c.request_type == RequestType.RECEIVE]
    assert (receive.status, receive.request_context) == (Status.CANCELED, "receive")
    assert final(notice) == Status.SUCCESS
    pair.active.qp.send(None, "after")
    assert statuses(pair.active.reap()) == [Status.CANCELED]
    assert final(pair.active.connector.disconnect()) == Status.SUCCESS


@pytest.mark.parametrize(("sent", "room"), [(1, 0), (65, 64), (5000, 4999), (400_000, 300_000)])
def test_send_completes_remote_error_when_the_receive_is_too_small(
    connected: Pair, sent: int, room: int
) -> None:
    source, sink = connected.active.memory(sent), connected.passive.memory(sent)
    notice = connected.passive.connector.notify_disconnect()
    connected.passive.qp.receive(sink.sge(0, room), "small")
    connected.active.qp.send(source.sge(), "large")
    connected.active.qp.send(None, "behind")
    completions = connected.reap(connected.active, 2)
    assert statuses(completions) == [Status.REMOTE_ERROR, Status.CANCELED]
    assert contexts(completions) == ["large", "behind"]
    assert statuses(connected.reap(connected.passive)) == [Status.BUFFER_OVERFLOW]
    assert connected.settle(notice, connected.passive) == Status.SUCCESS


def test_send_completes_remote_error_when_an_sge_of_the_receive_is_bad(connected: Pair) -> None:
    connected.passive.qp.receive(connected.passive.garbage_sge(16), "bad")
    connected.active.qp.send(connected.active.memory(16).sge(), "good")
    assert statuses(connected.reap(connected.active)) == [Status.REMOTE_ERROR]
    assert statuses(connected.reap(connected.passive)) == [Status.ACCESS_VIOLATION]
