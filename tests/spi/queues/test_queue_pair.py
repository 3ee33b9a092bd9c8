# SPDX-License-Identifier: Apache-2.0
"""IND2QueuePair: every status of every request, what completes how, and in which order."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from shmnd import NdError, OpFlag, RequestType, Status
from spi import roles
from spi.harness import (
    FILL,
    LOCAL,
    REMOTE,
    WAIT,
    Buffer,
    End,
    contexts,
    final,
    nd_error,
    statuses,
    wait_completion,
)
from spi.pair import Pair
from spi.remote import Ends

SIZES = [0, 1, 47, 48, 49, 63, 64, 65, 1000, 4096, 65536, 1 << 20]
MakePair = Callable[..., Pair]


@functools.cache
def pattern(length: int) -> bytes:
    """Bytes that show a shift or a tear: no two neighbouring kilobytes are alike."""
    return bytes((i * 7 + (i >> 10) + 1) & 0xFF for i in range(length))


def too_long(end: End, buffer: Buffer) -> list[Any]:
    """One byte more than a request may move, whatever the memory behind it."""
    limit = end.info.max_transfer_length
    return [buffer.raw_sge(0, limit), buffer.raw_sge(0, 1)]


def too_many(buffer: Buffer, limit: int) -> list[Any]:
    return [buffer.sge(0, 1)] * (limit + 1)


def post(end: End, request: str, buffer: Buffer, **changes: Any) -> None:
    """Post a request of any type that would succeed on a connected pair, but for the changes."""
    if request == "send":
        arguments: dict[str, Any] = {"sge": buffer.sge()}
    elif request in ("read", "write"):
        arguments = {"sge": None, "remote_address": 0, "remote_token": 0}
    else:
        arguments = {"memory_window": end.adapter.create_memory_window()}
    if request == "bind":
        arguments |= {
            "memory_region": buffer.mr,
            "address": buffer.address,
            "length": buffer.length,
            "flags": OpFlag.ALLOW_READ,
        }
    getattr(end.qp, request)(**(arguments | changes))


def ended(pair: Pair, failed: End, other: End) -> None:
    """Fail with something posted on both sides, and see what the tables say about the rest."""
    failed.qp.receive(None, "late")
    other.qp.receive(None, "later")
    assert statuses(pair.reap(failed)) == [Status.CANCELED]
    assert statuses(pair.reap(other)) == [Status.CANCELED]


def watched(other: End) -> Any:
    """Two Receives and a NotifyDisconnect, which a fault at the far side must end."""
    other.qp.receive(None, "first")
    other.qp.receive(None, "second")
    return other.connector.notify_disconnect()


def saw_the_end(pair: Pair, other: End, notice: Any) -> None:
    canceled = pair.reap(other, 2)
    assert statuses(canceled) == [Status.CANCELED] * 2
    assert contexts(canceled) == ["first", "second"]
    assert pair.settle(notice, other) == Status.SUCCESS


# Common to all requests


@pytest.mark.parametrize("state", ["A0", "A1", "A2", "A3", "A6"])
@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_connection_invalid_when_the_queue_pair_is_not_connected(
    pair: Pair, state: str, request_name: str
) -> None:
    pair.to(state)
    end = pair.active
    buffer = end.memory(16)
    with nd_error(Status.CONNECTION_INVALID) as caught:
        post(end, request_name, buffer)
    assert isinstance(caught.value, ConnectionError)
    assert request_name in str(caught.value)
    assert end.leftover() == []


@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_no_more_entries_when_the_initiator_queue_is_full(
    make_pair: MakePair, request_name: str
) -> None:
    pair = make_pair(rnr_timeout=120.0, depth=4).connect()
    end = pair.active
    fitted = end.fill_initiator_queue()
    assert fitted >= 4
    buffer = end.memory(16)
    with nd_error(Status.NO_MORE_ENTRIES) as caught:
        post(end, request_name, buffer)
    assert isinstance(caught.value, BlockingIOError)
    assert str(fitted) in str(caught.value), "the message names the limit"
    end.qp.flush()
    canceled = end.reap(fitted)
    assert statuses(canceled) == [Status.CANCELED] * fitted
    assert contexts(canceled) == list(range(fitted))
    pair.exchange()


def test_post_no_more_entries_when_the_depth_is_zero(make_pair: MakePair) -> None:
    pair = make_pair(depth=0).connect()
    buffer = pair.active.memory(16)
    for request_name in ("send", "bind", "invalidate", "read", "write"):
        with nd_error(Status.NO_MORE_ENTRIES):
            post(pair.active, request_name, buffer)
    with nd_error(Status.NO_MORE_ENTRIES):
        pair.active.qp.receive(None)


@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_succeeds_and_completes_canceled_after_the_peer_has_disconnected(
    connected: Pair, request_name: str
) -> None:
    connected.hang_up(connected.passive)
    end = connected.active
    buffer = end.memory(16)
    post(end, request_name, buffer, context="in vain")
    end.qp.receive(None, "too")
    completions = end.reap(2)
    assert statuses(completions) == [Status.CANCELED] * 2
    assert sorted(contexts(completions)) == ["in vain", "too"]
    assert RequestType[request_name.upper()] in [c.request_type for c in completions]


@pytest.mark.parametrize("request_name", ["send", "bind", "invalidate", "read", "write"])
def test_post_succeeds_and_completes_canceled_even_if_silent(
    connected: Pair, request_name: str
) -> None:
    connected.hang_up(connected.passive)
    end = connected.active
    post(end, request_name, end.memory(16), context="loud", flags=OpFlag.SILENT_SUCCESS)
    (completion,) = end.reap()
    assert (completion.status, completion.request_context) == (Status.CANCELED, "loud")


def test_post_checks_flags_then_count_then_length_then_connection_then_depth(
    make_pair: MakePair,
) -> None:
    end = make_pair(depth=0).active
    buffer = end.memory(16)
    long = too_long(end, buffer)
    many = long + too_many(buffer, end.info.max_initiator_sge)
    for request, where in ((end.qp.send, ()), (end.qp.read, (0, 0)), (end.qp.write, (0, 0))):
        bad_flags = Status.INVALID_PARAMETER_6 if where else Status.INVALID_PARAMETER_4
        with nd_error(bad_flags):
            request(many, *where, flags=0x40)
        with nd_error(Status.DATA_OVERRUN):
            request(many, *where)
        with nd_error(Status.BUFFER_OVERFLOW):
            request(long, *where)
        with nd_error(Status.CONNECTION_INVALID):
            request(buffer.sge(), *where)
    assert end.leftover() == []


def test_post_failing_changes_nothing(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16)
    for _ in range(100):
        with pytest.raises(NdError):
            end.qp.send(buffer.sge(), flags=0x40)
        with pytest.raises(NdError):
            end.qp.send(too_many(buffer, end.info.max_initiator_sge))
        with pytest.raises(NdError):
            end.qp.receive(too_many(buffer, end.info.max_receive_sge))
        with pytest.raises(NdError):
            end.qp.write(too_long(end, buffer), 0, 0)
    assert end.leftover() == []
    connected.exchange()


def test_post_takes_a_tuple_a_list_and_a_single_entry(connected: Pair) -> None:
    source, sink = connected.active.memory(6), connected.passive.memory(6)
    source.put(b"abcdef")
    halves = [source.sge(0, 3), source.sge(3, 3)]
    for sge in (source.sge(), halves, tuple(halves)):
        sink.put(bytes(6))
        connected.passive.qp.receive(sink.sge())
        connected.active.qp.send(sge)
        assert statuses(connected.reap(connected.active)) == [Status.SUCCESS]
        assert connected.reap(connected.passive)[0].bytes_transferred == 6
        assert sink.get() == b"abcdef"


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
            assert contexts(connected.reap(connected.active)) == [number]
        received = connected.reap(connected.passive, batch)
        assert contexts(received) == list(numbers)
        assert {c.bytes_transferred for c in received} == {size}
        for number in numbers:
            got = sink.get(size, (number % batch) * size)
            assert got == number.to_bytes(8, "little") * (size // 8)


def test_send_success_waits_for_a_receive_that_is_posted_late(patient: Pair) -> None:
    source, sink = patient.active.memory(5), patient.passive.memory(5)
    source.put(b"later")
    for number in range(3):
        patient.active.qp.send(source.sge(), number)
    assert patient.active.leftover() == []
    for number in range(3):
        patient.passive.qp.receive(sink.sge(), 100 + number)
        assert contexts(patient.reap(patient.passive)) == [100 + number]
        assert contexts(patient.reap(patient.active)) == [number]
    assert sink.get() == b"later"


def test_send_success_when_completions_are_not_retrieved(make_pair: MakePair) -> None:
    pair = make_pair(active={"depth": 4}).connect()
    for number in range(32):
        pair.passive.qp.receive(None, number)
    for number in range(32):
        pair.active.qp.send(None, number)
    assert contexts(pair.reap(pair.active, 32)) == list(range(32))
    assert contexts(pair.reap(pair.passive, 32)) == list(range(32))


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
    assert contexts(pair.reap(pair.active)) == ["last"]
    assert contexts(pair.reap(pair.passive, 40)) == list(range(40))


def test_send_success_with_a_read_fence(connected: Pair) -> None:
    source, sink = connected.passive.memory(8, REMOTE), connected.active.memory(8)
    source.put(b"12345678")
    connected.passive.qp.receive(None)
    connected.active.qp.read(sink.sge(), source.address, source.remote_token, "read")
    connected.active.qp.send(None, "fenced", flags=OpFlag.READ_FENCE)
    assert contexts(connected.reap(connected.active, 2)) == ["read", "fenced"]
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
def test_post_success_again_when_what_was_posted_completed_though_nobody_polled(
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
    assert contexts(other.reap(4)) == [0, 1, 2, 3]
    post(end, request_name, buffer, context="one more")
    assert contexts(end.reap(5)) == [0, 1, 2, 3, "one more"]


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


LOCAL_FAULTS: dict[str, Callable[[Buffer], Any]] = {
    "end_beyond_the_region": lambda buffer: buffer.raw_sge(1, buffer.length),
    "start_before_the_region": lambda buffer: buffer.raw_sge(-1, 4),
    "far_away": lambda buffer: buffer.raw_sge(1 << 40, 4),
    "token_never_given_out": lambda buffer: buffer.raw_sge(0, 4, 0xFFFFFFFE),
    "token_zero": lambda buffer: buffer.raw_sge(0, 4, 0),
}
each_local_fault = pytest.mark.parametrize("fault", LOCAL_FAULTS.values(), ids=LOCAL_FAULTS.keys())


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
    impatient.active.qp.send(None, "nobody")
    impatient.active.qp.send(None, "behind")
    completions = impatient.reap(impatient.active, 2)
    assert statuses(completions) == [Status.IO_TIMEOUT, Status.CANCELED]
    assert contexts(completions) == ["nobody", "behind"]
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
    """What nobody takes stays: a program that continues and on is stopped, and loses nothing."""
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


def test_receive_success_again_when_messages_used_them_up_though_nobody_polled(
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


# Flush


def test_flush_success_takes_what_has_arrived_first(connected: Pair) -> None:
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


def test_flush_success_into_a_queue_nobody_polls(make_pair: MakePair) -> None:
    pair = make_pair(cq_depth=2)
    for number in range(64):
        pair.active.qp.receive(None, number)
    pair.active.qp.flush()
    assert contexts(pair.active.reap(64)) == list(range(64))


# Bind and Invalidate: the statuses; what windows do is in test_memory_window.py


def test_bind_success_with_any_of_its_flags(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(64)
    for flags in (0, 0x08, 0x10, 0x18, 0x1A):
        window = end.adapter.create_memory_window()
        end.qp.bind(buffer.mr, window, buffer.address, 64, flags, flags=flags)
        (bound,) = end.reap()
        assert (bound.status, bound.request_type) == (Status.SUCCESS, RequestType.BIND)
        assert bound.request_context == flags


def test_bind_connection_invalid_when_never_connected(pair: Pair) -> None:
    buffer = pair.active.memory(16)
    with nd_error(Status.CONNECTION_INVALID, match="bind"):
        post(pair.active, "bind", buffer)
    assert final(buffer.mr.deregister()) == Status.SUCCESS, "the window is not bound"


def test_bind_no_more_entries_when_depth_is_outstanding(patient: Pair) -> None:
    buffer = patient.active.memory(16)
    patient.active.fill_initiator_queue()
    with nd_error(Status.NO_MORE_ENTRIES, match="bind"):
        post(patient.active, "bind", buffer)
    assert final(buffer.mr.deregister()) == Status.SUCCESS, "the window is not bound"


def test_bind_access_violation_when_the_region_does_not_grant_writing(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16, 0)
    with nd_error(Status.ACCESS_VIOLATION, match="bind") as caught:
        post(end, "bind", buffer, flags=OpFlag.ALLOW_WRITE)
    assert isinstance(caught.value, PermissionError)
    assert end.leftover() == []
    connected.exchange()


@pytest.mark.parametrize(("offset", "length"), [(0, 17), (1, 16), (-1, 4), (16, 1), (1 << 40, 1)])
def test_bind_access_violation_when_the_range_is_outside_the_region(
    connected: Pair, offset: int, length: int
) -> None:
    end = connected.active
    buffer = end.memory(16)
    with nd_error(Status.ACCESS_VIOLATION):
        post(end, "bind", buffer, address=buffer.address + offset, length=length)
    assert end.leftover() == []
    connected.exchange()


def test_bind_access_violation_when_the_region_is_not_registered(connected: Pair) -> None:
    end = connected.active
    window, region = end.adapter.create_memory_window(), end.adapter.create_memory_region()
    with nd_error(Status.ACCESS_VIOLATION):
        end.qp.bind(region, window, 0x1000, 16, flags=OpFlag.ALLOW_READ)
    connected.exchange()


def test_bind_refuses_what_is_no_region_or_window_of_its_adapter(ends: Ends) -> None:
    pair = ends.pair("one").connect()
    end, other = pair.active, pair.passive
    near, far = end.memory(16), other.memory(16)
    window, foreign = end.adapter.create_memory_window(), other.adapter.create_memory_window()
    for bad in (far.mr, None, window):
        with nd_error(Status.INVALID_PARAMETER_2, match="bind"):
            end.qp.bind(bad, window, near.address, 16)
    for bad in (foreign, None, near.mr):
        with nd_error(Status.INVALID_PARAMETER_3, match="bind"):
            end.qp.bind(near.mr, bad, near.address, 16)
        with nd_error(Status.INVALID_PARAMETER_2, match="invalidate"):
            end.qp.invalidate(bad)
    assert end.leftover() == []
    pair.exchange()


@pytest.mark.parametrize("flags", [0x04, 0x20, 0x40, 0x80000000])
def test_bind_invalid_parameter_6_when_flags_are_unknown(connected: Pair, flags: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_6, match="(?i)bind.*flags"):
        post(connected.active, "bind", connected.active.memory(16), flags=flags)
    connected.exchange()


def test_bind_completes_success_and_silently_if_asked(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16)
    post(end, "bind", buffer, context="silent", flags=OpFlag.SILENT_SUCCESS | OpFlag.ALLOW_READ)
    post(end, "bind", buffer, context="loud", flags=OpFlag.READ_FENCE | OpFlag.ALLOW_READ)
    assert contexts(end.reap()) == ["loud"]
    assert end.leftover() == []


def test_bind_completes_canceled_when_flushed_behind_a_waiting_send(patient: Pair) -> None:
    end = patient.active
    end.qp.send(None, "waits")
    post(end, "bind", end.memory(16), context="behind")
    end.qp.flush()
    canceled = end.reap(2)
    assert contexts(canceled) == ["waits", "behind"]
    assert statuses(canceled) == [Status.CANCELED] * 2


def test_bind_completes_invalid_device_request_when_the_window_is_bound(
    connected: Pair,
) -> None:
    end = connected.active
    buffer = end.memory(16)
    window = connected.window(end, buffer, OpFlag.ALLOW_READ)
    notice = watched(connected.passive)
    post(end, "bind", buffer, memory_window=window, context="twice")
    post(end, "bind", buffer, context="behind")
    completions = connected.reap(end, 2)
    assert statuses(completions) == [Status.INVALID_DEVICE_REQUEST, Status.CANCELED]
    assert contexts(completions) == ["twice", "behind"]
    saw_the_end(connected, connected.passive, notice)


def test_invalidate_success_and_the_window_can_be_bound_again(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16)
    window = connected.window(end, buffer, OpFlag.ALLOW_READ)
    for number in range(20):
        end.qp.invalidate(window, number)
        (done,) = end.reap()
        assert (done.status, done.request_type) == (Status.SUCCESS, RequestType.INVALIDATE)
        assert done.request_context == number
        post(end, "bind", buffer, memory_window=window)
        assert statuses(end.reap()) == [Status.SUCCESS]


def test_invalidate_connection_invalid_when_never_connected(pair: Pair) -> None:
    with nd_error(Status.CONNECTION_INVALID, match="invalidate"):
        post(pair.active, "invalidate", pair.active.memory(16))


def test_invalidate_no_more_entries_when_depth_is_outstanding(patient: Pair) -> None:
    end = patient.active
    buffer = end.memory(16)
    window = patient.window(end, buffer, OpFlag.ALLOW_READ)
    end.fill_initiator_queue()
    with nd_error(Status.NO_MORE_ENTRIES, match="invalidate"):
        end.qp.invalidate(window)
    with nd_error(Status.DEVICE_BUSY):
        buffer.mr.deregister()


@pytest.mark.parametrize("flags", [0x04, 0x08, 0x10, 0x20, 0x40])
def test_invalidate_invalid_parameter_3_when_flags_are_unknown(connected: Pair, flags: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_3, match="(?i)invalidate.*flags"):
        post(connected.active, "invalidate", connected.active.memory(16), flags=flags)
    connected.exchange()


def test_invalidate_completes_success_and_silently_if_asked(connected: Pair) -> None:
    end = connected.active
    buffer = end.memory(16)
    first = connected.window(end, buffer, OpFlag.ALLOW_READ)
    second = connected.window(end, buffer, OpFlag.ALLOW_READ)
    end.qp.invalidate(first, "silent", flags=OpFlag.SILENT_SUCCESS)
    end.qp.invalidate(second, "loud", flags=OpFlag.READ_FENCE)
    assert contexts(end.reap()) == ["loud"]
    assert end.leftover() == []


def test_invalidate_completes_canceled_when_flushed_behind_a_waiting_send(patient: Pair) -> None:
    end = patient.active
    window = patient.window(end, end.memory(16), OpFlag.ALLOW_READ)
    end.qp.send(None, "waits")
    end.qp.invalidate(window, "behind")
    end.qp.flush()
    canceled = end.reap(2)
    assert contexts(canceled) == ["waits", "behind"]
    assert statuses(canceled) == [Status.CANCELED] * 2


def test_invalidate_completes_invalid_device_request_when_the_window_is_unbound(
    connected: Pair,
) -> None:
    end = connected.active
    notice = watched(connected.passive)
    end.qp.invalidate(end.adapter.create_memory_window(), "unbound")
    end.qp.send(None, "behind")
    completions = connected.reap(end, 2)
    assert statuses(completions) == [Status.INVALID_DEVICE_REQUEST, Status.CANCELED]
    assert contexts(completions) == ["unbound", "behind"]
    saw_the_end(connected, connected.passive, notice)
    ended(connected, end, connected.passive)


# Read and Write


@pytest.mark.parametrize("size", SIZES)
def test_read_success_fetches_every_byte(connected: Pair, size: int) -> None:
    source, sink = connected.passive.memory(size + 2, REMOTE), connected.active.memory(size + 2)
    source.put(pattern(size), 1)
    connected.active.qp.read(sink.sge(1, size), source.address + 1, source.remote_token, "read")
    (read,) = connected.active.reap()
    assert (read.status, read.request_type) == (Status.SUCCESS, RequestType.READ)
    assert read.request_context == "read"
    assert sink.get() == bytes([FILL]) + pattern(size) + bytes([FILL])


@pytest.mark.parametrize("size", SIZES)
def test_write_success_stores_every_byte(connected: Pair, size: int) -> None:
    source, sink = connected.active.memory(size + 2), connected.passive.memory(size + 2, REMOTE)
    source.put(pattern(size), 1)
    connected.active.qp.write(source.sge(1, size), sink.address + 1, sink.remote_token, "write")
    (written,) = connected.active.reap()
    assert (written.status, written.request_type) == (Status.SUCCESS, RequestType.WRITE)
    assert written.request_context == "write"
    assert sink.get() == bytes([FILL]) + pattern(size) + bytes([FILL])
    assert connected.passive.leftover() == [], "nothing tells the target"


@pytest.mark.parametrize("request_name", ["read", "write"])
def test_post_of_zero_bytes_checks_neither_token_nor_address(
    connected: Pair, request_name: str
) -> None:
    post(connected.active, request_name, connected.active.memory(1), remote_token=0xFFFFFFFE)
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    connected.exchange()


def test_read_success_scatters_in_order(connected: Pair) -> None:
    source, sink = connected.passive.memory(12, REMOTE), connected.active.memory(12)
    source.put(b"abcdefghijkl")
    entries = [sink.sge(6, 6), sink.sge(0, 1), sink.sge(1, 5)]
    connected.active.qp.read(entries, source.address, source.remote_token)
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    assert sink.get() == b"ghijklabcdef"


def test_write_success_gathers_in_order(connected: Pair) -> None:
    source, sink = connected.active.memory(12), connected.passive.memory(12, REMOTE)
    source.put(b"abcdefghijkl")
    entries = [source.sge(6, 6), source.sge(0, 1), source.sge(1, 5)]
    connected.active.qp.write(entries, sink.address, sink.remote_token)
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    assert sink.get() == b"ghijklabcdef"


@pytest.mark.parametrize("flags", [0x8, 0x1, 0x9, 0x7], ids=["sink", "local", "both", "remote"])
def test_read_success_into_a_sink_or_a_writable_region(connected: Pair, flags: int) -> None:
    source, sink = connected.passive.memory(8, REMOTE), connected.active.memory(8, flags)
    source.put(b"12345678")
    connected.active.qp.read(sink.sge(), source.address, source.remote_token)
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    assert sink.get() == b"12345678"


def test_read_success_of_more_than_the_limit_at_once(make_pair: MakePair) -> None:
    pair = make_pair()
    pair.limits = (1, 1)
    pair.connect()
    count = 32
    source, sink = pair.passive.memory(count, REMOTE), pair.active.memory(count)
    source.put(pattern(count))
    for i in range(count):
        pair.active.qp.read(sink.sge(i, 1), source.address + i, source.remote_token, i)
    reads = pair.active.reap(count)
    assert contexts(reads) == list(range(count))
    assert sink.get() == pattern(count)


def test_write_success_of_a_source_without_any_right(connected: Pair) -> None:
    source, sink = connected.active.memory(8, 0), connected.passive.memory(8, REMOTE)
    source.put(b"12345678")
    connected.active.qp.write(source.sge(), sink.address, sink.remote_token)
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    assert sink.get() == b"12345678"


@pytest.mark.parametrize("size", [8, 100_000])
def test_write_success_is_seen_when_the_next_send_is_received(connected: Pair, size: int) -> None:
    source, sink = connected.active.memory(size), connected.passive.memory(size, REMOTE)
    for number in range(1, 30):
        source.put(bytes([number]) * size)
        connected.passive.qp.receive(None)
        connected.active.qp.write(
            source.sge(), sink.address, sink.remote_token, flags=OpFlag.SILENT_SUCCESS
        )
        connected.active.qp.send(None)
        assert statuses(connected.passive.reap()) == [Status.SUCCESS]
        assert sink.get() == bytes([number]) * size
        assert statuses(connected.active.reap()) == [Status.SUCCESS]


def test_write_success_inline_captures_the_data_during_the_call(make_pair: MakePair) -> None:
    pair = make_pair(inline=64, rnr_timeout=120.0).connect()
    source, sink = pair.active.memory(64), pair.passive.memory(64, REMOTE)
    source.put(pattern(64))
    pair.active.qp.send(None, "holds the write back")
    pair.active.qp.write(source.sge(), sink.address, sink.remote_token, flags=OpFlag.INLINE)
    source.put(bytes(64))
    pair.passive.qp.receive(None)
    assert statuses(pair.reap(pair.active, 2)) == [Status.SUCCESS] * 2
    assert sink.get() == pattern(64)


@pytest.mark.active_end_here
def test_write_success_inline_ignores_the_token(make_pair: MakePair) -> None:
    pair = make_pair(inline=64).connect()
    sink = pair.passive.memory(16, REMOTE)
    unregistered = shmnd.Sge(bytearray(b"never registered"), 16, 0xFFFFFFFE)
    pair.active.qp.write(unregistered, sink.address, sink.remote_token, flags=OpFlag.INLINE)
    assert statuses(pair.active.reap()) == [Status.SUCCESS]
    assert sink.get() == b"never registered"


@pytest.mark.parametrize("request_name", ["read", "write"])
def test_post_silent_makes_no_completion(connected: Pair, request_name: str) -> None:
    end = connected.active
    post(end, request_name, end.memory(1), context="silent", flags=OpFlag.SILENT_SUCCESS)
    post(end, request_name, end.memory(1), context="loud", flags=OpFlag.READ_FENCE)
    assert contexts(end.reap()) == ["loud"]
    assert end.leftover() == []


@pytest.mark.parametrize("private", ["near", "far"])
@pytest.mark.parametrize("size", [3, 5000, 300_000])
def test_read_success_with_private_memory(connected: Pair, size: int, private: str) -> None:
    source = private_or_refused(connected.passive, size, REMOTE, private=private == "far")
    sink = connected.active.memory(size, private=private == "near")
    source.put(pattern(size))
    connected.active.qp.read(sink.sge(), source.address, source.remote_token)
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    assert sink.get() == pattern(size)


@pytest.mark.parametrize("private", ["near", "far"])
@pytest.mark.parametrize("size", [3, 5000, 300_000])
def test_write_success_with_private_memory(connected: Pair, size: int, private: str) -> None:
    source = connected.active.memory(size, private=private == "near")
    sink = private_or_refused(connected.passive, size, REMOTE, private=private == "far")
    source.put(pattern(size))
    connected.active.qp.write(source.sge(), sink.address, sink.remote_token)
    assert statuses(connected.active.reap()) == [Status.SUCCESS]
    assert sink.get() == pattern(size)


def private_or_refused(end: End, size: int, flags: int, *, private: bool) -> Buffer:
    """Memory of a process for access from others, which a kernel may forbid."""
    try:
        return end.memory(size, flags, private=private)
    except NdError as error:
        if private and "allocate" in str(error):
            pytest.skip(f"this kernel forbids it: {error}")
        raise


def test_read_connection_invalid_when_never_connected(pair: Pair) -> None:
    with nd_error(Status.CONNECTION_INVALID, match="read"):
        post(pair.active, "read", pair.active.memory(1))


def test_write_connection_invalid_when_never_connected(pair: Pair) -> None:
    with nd_error(Status.CONNECTION_INVALID, match="write"):
        post(pair.active, "write", pair.active.memory(1))


def test_read_buffer_overflow_when_longer_than_max_transfer_length(connected: Pair) -> None:
    end = connected.active
    with nd_error(Status.BUFFER_OVERFLOW, match=str(end.info.max_transfer_length)):
        end.qp.read(too_long(end, end.memory(1)), 0, 0)
    connected.exchange()


def test_write_buffer_overflow_when_longer_than_max_transfer_length(connected: Pair) -> None:
    end = connected.active
    with nd_error(Status.BUFFER_OVERFLOW, match=str(end.info.max_transfer_length)):
        end.qp.write(too_long(end, end.memory(1)), 0, 0)
    connected.exchange()


def test_write_buffer_overflow_when_inline_is_longer_than_granted(make_pair: MakePair) -> None:
    pair = make_pair(inline=16).connect()
    end = pair.active
    buffer = end.memory(end.info.max_inline_data_size + 1)
    with nd_error(Status.BUFFER_OVERFLOW):
        end.qp.write(buffer.sge(), 0, 0, flags=OpFlag.INLINE)
    pair.exchange()


def test_read_no_more_entries_when_depth_is_outstanding(patient: Pair) -> None:
    patient.active.fill_initiator_queue()
    with nd_error(Status.NO_MORE_ENTRIES, match="read"):
        post(patient.active, "read", patient.active.memory(1))


def test_write_no_more_entries_when_depth_is_outstanding(patient: Pair) -> None:
    patient.active.fill_initiator_queue()
    with nd_error(Status.NO_MORE_ENTRIES, match="write"):
        post(patient.active, "write", patient.active.memory(1))


def test_read_data_overrun_when_more_sge_than_granted(connected: Pair) -> None:
    end = connected.active
    with nd_error(Status.DATA_OVERRUN, match=str(end.info.max_read_sge + 1)):
        end.qp.read(too_many(end.memory(1), end.info.max_read_sge), 0, 0)
    connected.exchange()


def test_write_data_overrun_when_more_sge_than_granted(connected: Pair) -> None:
    end = connected.active
    with nd_error(Status.DATA_OVERRUN, match=str(end.info.max_initiator_sge + 1)):
        end.qp.write(too_many(end.memory(1), end.info.max_initiator_sge), 0, 0)
    connected.exchange()


@pytest.mark.parametrize("flags", [0x04, 0x08, 0x10, 0x20, 0x40])
def test_read_invalid_parameter_6_when_flags_are_unknown(connected: Pair, flags: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_6, match="(?i)read.*flags"):
        post(connected.active, "read", connected.active.memory(1), flags=flags)
    connected.exchange()


@pytest.mark.parametrize("flags", [0x04, 0x08, 0x10, 0x40])
def test_write_invalid_parameter_6_when_flags_are_unknown(connected: Pair, flags: int) -> None:
    with nd_error(Status.INVALID_PARAMETER_6, match="(?i)write.*flags"):
        post(connected.active, "write", connected.active.memory(1), flags=flags)
    connected.exchange()


def test_read_completes_success_in_order_with_other_requests(connected: Pair) -> None:
    near, far = connected.active.memory(8), connected.passive.memory(8, REMOTE)
    near.put(b"12345678")
    where = (far.address, far.remote_token)
    for number in range(10):
        connected.passive.qp.receive(None, number)
        connected.active.qp.write(near.sge(), *where, "write")
        connected.active.qp.read(near.sge(), *where, "read")
        connected.active.qp.send(None, "send")
    assert contexts(connected.active.reap(30)) == ["write", "read", "send"] * 10
    assert near.get() == far.get() == b"12345678"


def test_write_completes_success_without_a_call_of_the_target(connected: Pair) -> None:
    source, sink = connected.active.memory(4096), connected.passive.memory(4096, REMOTE)
    connected.play(
        roles.write_numbers,
        roles.watch_numbers,
        active_args=(source, sink.address, sink.remote_token, 20),
        passive_args=(sink, 20),
    )
    assert sink.get() == bytes([20]) * 4096


@each_local_fault
@pytest.mark.parametrize("request_name", ["read", "write"])
def test_post_completes_access_violation_when_a_local_sge_is_bad(
    connected: Pair, request_name: str, fault: Callable[[Buffer], Any]
) -> None:
    end, other = connected.active, connected.passive
    far = other.memory(1024, REMOTE)
    notice = watched(other)
    near = end.memory(16)
    getattr(end.qp, request_name)(fault(near), far.address, far.remote_token, "bad")
    getattr(end.qp, request_name)(None, 0, 0, "behind")
    completions = connected.reap(end, 2)
    assert statuses(completions) == [Status.ACCESS_VIOLATION, Status.CANCELED]
    assert contexts(completions) == ["bad", "behind"]
    saw_the_end(connected, other, notice)
    assert far.get() == bytes([FILL]) * 1024
    assert near.get() == bytes([FILL]) * 16


REMOTE_FAULTS: dict[str, Callable[[Buffer], tuple[int, int]]] = {
    "token_never_given_out": lambda far: (far.address, 0xFFFFFFFE),
    "token_zero": lambda far: (far.address, 0),
    "end_beyond_the_region": lambda far: (far.address + 1, far.remote_token),
    "start_before_the_region": lambda far: (far.address - 1, far.remote_token),
    "far_away": lambda far: (far.address + (1 << 40), far.remote_token),
    "address_wraps": lambda far: ((1 << 64) - 8, far.remote_token),
}
each_remote_fault = pytest.mark.parametrize(
    "fault", REMOTE_FAULTS.values(), ids=REMOTE_FAULTS.keys()
)


def remote_fault(pair: Pair, request_name: str, near: Buffer, where: tuple[int, int]) -> None:
    """A request that the far side must refuse: what both sides see of it."""
    end, other = pair.active, pair.passive
    notice = watched(other)
    getattr(end.qp, request_name)(near.sge(), *where, "bad")
    end.qp.send(None, "behind")
    completions = pair.reap(end, 2)
    assert statuses(completions) == [Status.ACCESS_VIOLATION, Status.CANCELED]
    assert contexts(completions) == ["bad", "behind"]
    saw_the_end(pair, other, notice)


@each_remote_fault
def test_read_completes_access_violation_when_the_target_is_bad(
    connected: Pair, fault: Callable[[Buffer], tuple[int, int]]
) -> None:
    near, far = connected.active.memory(64), connected.passive.memory(64, REMOTE)
    far.put(bytes(64))
    remote_fault(connected, "read", near, fault(far))
    assert near.get() == bytes([FILL]) * 64, "nothing is transferred"


@each_remote_fault
def test_write_completes_access_violation_when_the_target_is_bad(
    connected: Pair, fault: Callable[[Buffer], tuple[int, int]]
) -> None:
    near, far = connected.active.memory(64), connected.passive.memory(64, REMOTE)
    near.put(bytes(64))
    remote_fault(connected, "write", near, fault(far))
    assert far.get() == bytes([FILL]) * 64, "nothing is transferred"


@pytest.mark.parametrize("flags", [0x0, 0x1, 0x5, 0x8])
def test_read_completes_access_violation_when_the_right_is_missing(
    connected: Pair, flags: int
) -> None:
    near, far = connected.active.memory(64), connected.passive.memory(64, flags)
    far.put(bytes(64))
    remote_fault(connected, "read", near, (far.address, far.remote_token))
    assert near.get() == bytes([FILL]) * 64


@pytest.mark.parametrize("flags", [0x0, 0x1, 0x2, 0x3, 0x8])
def test_write_completes_access_violation_when_the_right_is_missing(
    connected: Pair, flags: int
) -> None:
    near, far = connected.active.memory(64), connected.passive.memory(64, flags)
    near.put(bytes(64))
    remote_fault(connected, "write", near, (far.address, far.remote_token))
    assert far.get() == bytes([FILL]) * 64


@pytest.mark.parametrize("request_name", ["read", "write"])
def test_post_completes_access_violation_when_the_region_was_deregistered(
    connected: Pair, request_name: str
) -> None:
    near, far = connected.active.memory(64), connected.passive.memory(64, REMOTE)
    where = (far.address, far.remote_token)
    far.mr.deregister().result(timeout=WAIT)
    remote_fault(connected, request_name, near, where)
    assert near.get() == far.get() == bytes([FILL]) * 64


def test_read_completes_access_violation_when_the_sink_is_not_writable(connected: Pair) -> None:
    near, far = connected.active.memory(64, 0x2), connected.passive.memory(64, REMOTE)
    connected.active.qp.read(near.sge(), far.address, far.remote_token)
    assert statuses(connected.reap(connected.active)) == [Status.ACCESS_VIOLATION]


@pytest.mark.parametrize("request_name", ["read", "write"])
def test_post_completes_access_violation_even_if_silent(connected: Pair, request_name: str) -> None:
    request = getattr(connected.active.qp, request_name)
    near = connected.active.memory(8)
    request(near.sge(), 0x1000, 0xFFFFFFFE, "bad", flags=OpFlag.SILENT_SUCCESS)
    (completion,) = connected.reap(connected.active)
    assert (completion.status, completion.request_context) == (Status.ACCESS_VIOLATION, "bad")


@pytest.mark.parametrize("request_name", ["read", "write"])
def test_post_fault_leaves_other_connections_of_the_adapter_alone(
    connected: Pair, request_name: str
) -> None:
    active, passive = connected.active, connected.passive
    connector, partner = active.new_connector(), passive.new_connector()
    qp, far_qp = active.new_qp(), passive.new_qp()
    connecting = connector.connect(qp, connected.address, 1, 1)
    passive.listener.get_connection_request(partner).result(timeout=WAIT)
    accepting = partner.accept(far_qp, 1, 1)
    connecting.result(timeout=WAIT)
    connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    getattr(qp, request_name)(active.memory(8).sge(), 0x1000, 0xFFFFFFFE)
    assert statuses(connected.reap(active)) == [Status.ACCESS_VIOLATION]
    connected.exchange()


def test_read_completes_canceled_when_flushed_behind_a_waiting_send(patient: Pair) -> None:
    near, far = patient.active.memory(8), patient.passive.memory(8, REMOTE)
    far.put(bytes(8))
    patient.active.qp.send(None, "waits")
    patient.active.qp.read(near.sge(), far.address, far.remote_token, "behind")
    patient.active.qp.flush()
    canceled = patient.active.reap(2)
    assert contexts(canceled) == ["waits", "behind"]
    assert statuses(canceled) == [Status.CANCELED] * 2
    patient.exchange()


def test_write_completes_canceled_when_flushed_behind_a_waiting_send(patient: Pair) -> None:
    near, far = patient.active.memory(8), patient.passive.memory(8, REMOTE)
    patient.active.qp.send(None, "waits")
    patient.active.qp.write(near.sge(), far.address, far.remote_token, "behind")
    patient.active.qp.flush()
    canceled = patient.active.reap(2)
    assert contexts(canceled) == ["waits", "behind"]
    assert statuses(canceled) == [Status.CANCELED] * 2
    patient.exchange()


def test_read_completes_invalid_device_request_when_the_outbound_limit_is_zero(
    pair: Pair,
) -> None:
    pair.limits = (0, 0)
    pair.connect()
    near, far = pair.active.memory(8), pair.passive.memory(8, REMOTE)
    pair.active.qp.read(near.sge(), far.address, far.remote_token, "no limit, no read")
    pair.active.qp.write(near.sge(), far.address, far.remote_token, "behind")
    completions = pair.reap(pair.active, 2)
    assert statuses(completions) == [Status.INVALID_DEVICE_REQUEST, Status.CANCELED]
    assert near.get() == far.get() == bytes([FILL]) * 8


# Lifetime


def test_close_cancels_both_sides_like_a_disconnect(patient: Pair) -> None:
    notice = watched(patient.passive)
    patient.active.qp.receive(None, "receive")
    patient.active.qp.send(None, "sent")
    patient.active.qp.close()
    # The queue pair is gone; what it completed is not.
    completions = patient.active.reap(2)
    assert sorted(contexts(completions)) == ["receive", "sent"]
    results = {c.request_context: c.status for c in completions}
    assert results == {"receive": Status.CANCELED, "sent": Status.SUCCESS}
    received = patient.passive.reap(2)
    assert contexts(received) == ["first", "second"]
    assert statuses(received) == [Status.SUCCESS, Status.CANCELED]
    assert patient.settle(notice, patient.passive) == Status.SUCCESS


def test_close_twice_is_harmless_and_a_with_block_closes(end: End) -> None:
    qp = end.new_qp()
    qp.receive(None, "one")
    qp.close()
    qp.close()
    with end.new_qp() as other:
        other.receive(None, "two")
    assert contexts(end.reap(2)) == ["one", "two"]
    for closed in (qp, other):
        with pytest.raises(NdError):
            closed.receive(None)


def test_end_of_life_does_what_close_does(patient: Pair) -> None:
    notice = watched(patient.active)
    patient.passive.qp.receive(None, "theirs")
    patient.accepting = None
    patient.passive.file.poll()
    patient.passive.drop("qp")
    saw_the_end(patient, patient.active, notice)
    assert contexts(patient.passive.reap()) == ["theirs"]


def test_two_completion_queues_get_what_belongs_to_them(make_pair: MakePair) -> None:
    pair = make_pair(separate_cqs=True).connect()
    pair.passive.qp.receive(None, "receive")
    pair.active.qp.send(None, "send")
    assert contexts(wait_completion(pair.active.cq)) == ["send"]
    assert contexts(wait_completion(pair.passive.receive_cq)) == ["receive"]
    assert pair.active.receive_cq.get_results() == []
    assert pair.passive.cq.get_results() == []


def test_memory_of_either_kind_may_overlap_in_several_requests(connected: Pair) -> None:
    sink = connected.passive.memory(16)
    for number in range(8):
        connected.passive.qp.receive(sink.sge(), number)
    source = connected.active.memory(16, LOCAL)
    for number in range(8):
        connected.active.qp.send(source.sge(number, 8), number)
    assert contexts(connected.reap(connected.active, 8)) == list(range(8))
    assert contexts(connected.reap(connected.passive, 8)) == list(range(8))
