# SPDX-License-Identifier: Apache-2.0
"""IND2QueuePair: Read and Write."""

from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from shmnd import NdError, OpFlag, RequestType, Status
from spi import roles
from spi.harness import (
    FILL,
    REMOTE,
    WAIT,
    Buffer,
    End,
    contexts,
    nd_error,
    statuses,
)
from spi.pair import Pair
from spi.queues.queue_pair_kit import (
    SIZES,
    MakePair,
    each_local_fault,
    pattern,
    post,
    saw_the_end,
    too_long,
    too_many,
    watched,
)
from spi.remote import Ends


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


@pytest.mark.active_end_here
def test_write_buffer_overflow_when_an_inline_list_is_longer_than_granted(
    make_pair: MakePair,
) -> None:
    pair = make_pair(inline=16).connect()
    target = pair.passive.memory(64, REMOTE)
    before = target.get()
    entries = [shmnd.Sge(b"x", 1, 0)] * 17
    with nd_error(Status.BUFFER_OVERFLOW, match="17 bytes"):
        pair.active.qp.write(entries, target.address, target.remote_token, flags=OpFlag.INLINE)
    assert target.get() == before
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


def dies_midway(pair: Pair, request_name: str, private: bool, kill: Callable[[], int]) -> None:
    """A copy of many pieces has begun when the process of its other memory ends."""
    end, nbytes = pair.active, 32 << 20
    near, far = end.memory(nbytes), pair.passive.memory(nbytes, REMOTE, private=private)
    end.qp.receive(None, "receive")
    for number in range(2):
        getattr(end.qp, request_name)(near.sge(), far.address, far.remote_token, number)
    kill()
    ended = {each.request_context: each.status for each in end.reap(3)}
    assert ended == {0: Status.IO_TIMEOUT, 1: Status.CANCELED, "receive": Status.CANCELED}


@pytest.mark.parametrize("private", [False, True])
def test_read_completes_io_timeout_when_the_process_of_the_peer_dies_meanwhile(
    ends: Ends, kill: Callable[[], int], private: bool
) -> None:
    dies_midway(ends.pair("two").connect(), "read", private, kill)


@pytest.mark.parametrize("private", [False, True])
def test_write_completes_io_timeout_when_the_process_of_the_peer_dies_meanwhile(
    ends: Ends, kill: Callable[[], int], private: bool
) -> None:
    dies_midway(ends.pair("two").connect(), "write", private, kill)


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
