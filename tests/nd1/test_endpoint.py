# SPDX-License-Identifier: Apache-2.0
"""INDEndpoint: posting, windows, batches, flush."""

from collections.abc import Callable
from typing import Any

import pytest

import shmnd
import shmnd.nd1 as nd
from nd1.ends import End, Memory, Pair
from shmnd import Status
from spi.harness import WAIT, Late, nd_error

READ, WRITE = 0x8, 0x10
FEW = {"inbound_entries": 2, "outbound_entries": 2, "inbound_sge": 1, "outbound_sge": 1}


def done(end: End, post: Callable[..., Any], *args: Any) -> nd.Result:
    """Post a request and give its result, completed."""
    result = nd.Result()
    post(result, *args)
    assert end.reap() == [result]
    return result


def target(pair: Pair, flags: int = READ | WRITE, size: int = 256) -> tuple[Memory, Any, Any]:
    """A window of the passive side: its memory, itself, its descriptor."""
    memory = pair.passive.memory(size)
    return memory, *pair.window(pair.passive, memory, flags)


def broken(pair: Pair) -> None:
    """The connection has ended on both sides."""
    for end in (pair.active, pair.passive):
        end.connector.notify_disconnect().result(WAIT)


def posts(end: End) -> dict[str, Callable[..., Any]]:
    """Each data request as a function of (result, sges, flags)."""
    endpoint, far = end.endpoint, nd.MwDescriptor(4096, 1 << 33, 7)
    return {
        "send": endpoint.send,
        "send_and_invalidate": lambda r, s, f=0: endpoint.send_and_invalidate(r, s, far, f),
        "read": lambda r, s, f=0: endpoint.read(r, s, far, 0, f),
        "write": lambda r, s, f=0: endpoint.write(r, s, far, 0, f),
    }


# -- what a call refuses at once --


def refuses_unconnected(end: End, name: str) -> None:
    with nd_error(Status.CONNECTION_INVALID, match=f"Endpoint.{name}"):
        posts(end)[name](nd.Result(), None)
    assert end.cq.get_results() == []


def test_send_connection_invalid_before_the_connection(end: End) -> None:
    refuses_unconnected(end, "send")


def test_send_and_invalidate_connection_invalid_before_the_connection(end: End) -> None:
    refuses_unconnected(end, "send_and_invalidate")


def test_read_connection_invalid_before_the_connection(end: End) -> None:
    refuses_unconnected(end, "read")


def test_write_connection_invalid_before_the_connection(end: End) -> None:
    refuses_unconnected(end, "write")


def refuses_too_much(end: End, name: str) -> None:
    memory = end.memory(64)
    for length in ((1 << 31) + 1, 1 << 32, 1 << 40):
        huge = nd.Sge(memory.address, length, memory.handle)
        assert huge.length == length
        with nd_error(Status.BUFFER_OVERFLOW, match=f"Endpoint.{name}"):
            posts(end)[name](nd.Result(), [huge])


def test_send_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    refuses_too_much(end, "send")


def test_send_and_invalidate_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    refuses_too_much(end, "send_and_invalidate")


def test_read_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    refuses_too_much(end, "read")


def test_write_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    refuses_too_much(end, "write")


def test_send_buffer_overflow_beyond_the_inline_data(end: End) -> None:
    most = end.endpoint.max_inline_data
    for name in ("send", "send_and_invalidate", "write"):
        with nd_error(Status.BUFFER_OVERFLOW, match=f"Endpoint.{name}.*{most}"):
            posts(end)[name](nd.Result(), [nd.Sge(bytes(most), None, None), nd.Sge(b"x", 1, None)])


def refuses_many_elements(pair: Pair, name: str) -> None:
    """Before anything else that is wrong, inline elements included."""
    end = pair.active
    memory = end.memory(64)
    for count in (5, 17):
        for sge in (memory.sge(0, 1), nd.Sge(b"x", 1, None)):
            with nd_error(Status.DATA_OVERRUN, match=f"Endpoint.{name}"):
                posts(end)[name](nd.Result(), [sge] * count, 0x80)


def test_send_data_overrun_beyond_the_elements(pair: Pair) -> None:
    refuses_many_elements(pair, "send")


def test_send_and_invalidate_data_overrun_beyond_the_elements(pair: Pair) -> None:
    refuses_many_elements(pair, "send_and_invalidate")


def test_read_data_overrun_beyond_the_elements(pair: Pair) -> None:
    refuses_many_elements(pair, "read")


def test_write_data_overrun_beyond_the_elements(pair: Pair) -> None:
    refuses_many_elements(pair, "write")


def refuses_flags(end: End, name: str, parameter: int, allowed: int) -> None:
    """Before the connection is looked at; INLINE is of version 2."""
    for bit in (0x4, 0x8, 0x10, 0x20, 0x40, 1 << 31, 1 << 40):
        if not bit & allowed:
            with nd_error(Status[f"INVALID_PARAMETER_{parameter}"], match=f"Endpoint.{name}"):
                posts(end)[name](nd.Result(), None, bit)


def test_send_invalid_parameter_4_with_other_flags(end: End) -> None:
    refuses_flags(end, "send", 4, 0x7)


def test_send_and_invalidate_invalid_parameter_5_with_other_flags(end: End) -> None:
    refuses_flags(end, "send_and_invalidate", 5, 0x7)


def test_read_invalid_parameter_6_with_other_flags(end: End) -> None:
    refuses_flags(end, "read", 6, 0x3)


def test_write_invalid_parameter_6_with_other_flags(end: End) -> None:
    refuses_flags(end, "write", 6, 0x3)


def full(make_pair: Callable[..., Pair], name: str, *, inline: bool = False) -> None:
    """Sends that wait for a Receive fill the queue; another request finds no room."""
    pair = make_pair(rnr_timeout=120.0, **FEW).connect()
    end = pair.active
    waiting = [nd.Result() for _ in range(2)]
    for result in waiting:
        end.endpoint.send(result, nd.Sge(b"waits", 5, None) if inline else None)
    with nd_error(Status.NO_MORE_ENTRIES, match="2"):
        posts(end)[name](nd.Result(), nd.Sge(b"never", 5, None) if inline else None)
    sink = pair.passive.memory(8)
    for _ in waiting:
        pair.passive.endpoint.receive(nd.Result(), sink.sge())
    assert pair.both_reap(end, 2) == waiting
    if inline:
        assert sink.get(5) == b"waits", "what was refused has overwritten nothing"


def test_send_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    full(make_pair, "send")
    full(make_pair, "send", inline=True)


def test_send_and_invalidate_no_more_entries_when_the_queue_is_full(
    make_pair: Callable[..., Pair],
) -> None:
    full(make_pair, "send_and_invalidate")


def test_read_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    full(make_pair, "read")


def test_write_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    full(make_pair, "write")


def test_a_result_is_a_result(connected: Pair) -> None:
    endpoint = connected.active.endpoint
    for post in (endpoint.send, endpoint.receive):
        for result in (None, object()):
            with pytest.raises(TypeError, match="esult"):
                post(result, None)  # type: ignore[arg-type]


# -- Send and Receive --


@pytest.mark.parametrize("length", [0, 1, 48, 49, 1023, 1024, 4000, 65536, 1 << 20])
def test_send_completes_success_with_its_bytes(connected: Pair, length: int) -> None:
    source, sink = connected.active.memory(1 << 20), connected.passive.memory(1 << 20)
    data = bytes(i * 7 % 251 for i in range(length))
    source.put(data)
    received = nd.Result()
    connected.passive.endpoint.receive(received, [sink.sge()])
    sent = nd.Result()
    connected.active.endpoint.send(sent, [source.sge(0, length)])
    assert connected.both_reap(connected.passive) == [received]
    assert connected.both_reap(connected.active) == [sent]
    assert (sent.status, sent.bytes_transferred) == (Status.SUCCESS, length)
    assert (received.status, received.bytes_transferred) == (Status.SUCCESS, length)
    assert sink.get(length) == data


def test_send_success_is_silent_when_asked(connected: Pair) -> None:
    connected.passive.endpoint.receive(nd.Result(), None)
    connected.active.endpoint.send(nd.Result(), None, 0x1)
    connected.passive.reap()
    assert connected.active.cq.get_results() == []


def test_send_success_of_inline_and_registered_data_in_one_list(connected: Pair) -> None:
    """The inline parts may be written over as soon as the call is back."""
    source, sink = connected.active.memory(8192), connected.passive.memory(8192)
    source.put(b"R" * 8000)
    for registered in (10, 8000):
        head, tail = bytearray(b"head"), bytearray(b"tail!")
        connected.passive.endpoint.receive(nd.Result(), sink.sge())
        result = nd.Result()
        connected.active.endpoint.send(
            result,
            [nd.Sge(head, 4, None), source.sge(0, registered), nd.Sge(tail, 5, None)],
        )
        head[:], tail[:] = b"????", b"?????"
        connected.both_reap(connected.passive)
        assert connected.both_reap(connected.active) == [result]
        assert result.bytes_transferred == registered + 9
        assert sink.get(registered + 9) == b"head" + b"R" * registered + b"tail!"


def test_send_success_of_mixed_lists_that_wait(patient: Pair) -> None:
    """Each outstanding request has a copy of its own."""
    source, sink = patient.active.memory(8), patient.passive.memory(1024)
    source.put(b"+")
    results = [nd.Result() for _ in range(16)]
    for number, result in enumerate(results):
        data = bytes([number]) * 40
        patient.active.endpoint.send(result, [nd.Sge(data, 40, None), source.sge(0, 1)])
    for number in range(16):
        patient.passive.endpoint.receive(nd.Result(), sink.sge(number * 64, 64))
    assert patient.both_reap(patient.active, 16) == results
    patient.both_reap(patient.passive, 16)
    for number in range(16):
        assert sink.get(41, number * 64) == bytes([number]) * 40 + b"+"


def test_send_completes_access_violation_outside_the_registration(connected: Pair) -> None:
    end = connected.active
    memory = end.memory(64)
    result = done(end, end.endpoint.send, [nd.Sge(memory.address, 65, memory.handle)])
    assert (result.status, result.bytes_transferred) == (Status.ACCESS_VIOLATION, 0)
    broken(connected)


def test_send_completes_canceled_when_the_peer_disconnects(patient: Pair) -> None:
    result = nd.Result()
    patient.active.endpoint.send(result, None)
    patient.hang_up(patient.passive)
    assert patient.active.reap() == [result]
    assert result.status is Status.CANCELED


def test_send_completes_timeout_when_no_receive_comes(make_pair: Callable[..., Pair]) -> None:
    """The success-like bits of TIMEOUT make it no success; IO_TIMEOUT is of version 2."""
    pair = make_pair(rnr_timeout=0.1).connect()
    result = nd.Result()
    pair.active.endpoint.send(result, None)
    assert pair.both_reap(pair.active) == [result]
    assert result.status is Status.TIMEOUT
    assert result.status != Status.SUCCESS
    broken(pair)


def too_small(pair: Pair) -> tuple[nd.Result, nd.Result]:
    sink = pair.passive.memory(64)
    received, sent = nd.Result(), nd.Result()
    pair.passive.endpoint.receive(received, sink.sge(0, 3))
    pair.active.endpoint.send(sent, nd.Sge(b"four", 4, None))
    assert pair.both_reap(pair.active) == [sent]
    assert pair.both_reap(pair.passive) == [received]
    return sent, received


def test_send_completes_remote_error_when_the_receive_is_too_small(connected: Pair) -> None:
    sent, _ = too_small(connected)
    assert sent.status is Status.REMOTE_ERROR


def test_receive_completes_buffer_overflow_when_it_is_too_small(connected: Pair) -> None:
    _, received = too_small(connected)
    assert (received.status, received.bytes_transferred) == (Status.BUFFER_OVERFLOW, 0)
    broken(connected)


def test_receive_success_before_the_connection(pair: Pair) -> None:
    sink = pair.passive.memory(8)
    result = nd.Result()
    pair.passive.endpoint.receive(result, sink.sge())
    pair.connect()
    pair.active.endpoint.send(nd.Result(), nd.Sge(b"early", 5, None))
    assert pair.passive.reap() == [result]
    assert sink.get(5) == b"early"


def test_receive_completes_success_into_several_elements(connected: Pair) -> None:
    sink = connected.passive.memory(64)
    result = nd.Result()
    connected.passive.endpoint.receive(result, [sink.sge(0, 2), sink.sge(32, 30)])
    connected.active.endpoint.send(nd.Result(), nd.Sge(b"abcdef", 6, None))
    assert connected.passive.reap() == [result]
    assert (result.bytes_transferred, sink.get(2), sink.get(4, 32)) == (6, b"ab", b"cdef")


def test_receive_buffer_overflow_beyond_the_length_of_a_request(end: End) -> None:
    memory = end.memory(64)
    with nd_error(Status.BUFFER_OVERFLOW, match=r"Endpoint\.receive"):
        end.endpoint.receive(nd.Result(), nd.Sge(memory.address, 1 << 33, memory.handle))


def test_receive_no_more_entries_when_the_queue_is_full(make_end: Callable[..., End]) -> None:
    end = make_end(**FEW)
    for _ in range(2):
        end.endpoint.receive(nd.Result(), None)
    with nd_error(Status.NO_MORE_ENTRIES):
        end.endpoint.receive(nd.Result(), None)


def test_receive_data_overrun_beyond_the_elements(end: End) -> None:
    memory = end.memory(64)
    for count in (5, 17):
        with nd_error(Status.DATA_OVERRUN):
            end.endpoint.receive(nd.Result(), [memory.sge(0, 1)] * count)


@pytest.mark.parametrize("inline", [False, True])
def test_receive_completes_access_violation_into_what_is_not_registered(
    connected: Pair, inline: bool
) -> None:
    sink = connected.passive.memory(8)
    bad = nd.Sge(bytearray(8), 8, None) if inline else nd.Sge(sink.address, 9, sink.handle)
    received, sent = nd.Result(), nd.Result()
    connected.passive.endpoint.receive(received, bad)
    connected.active.endpoint.send(sent, nd.Sge(b"x", 1, None))
    assert connected.both_reap(connected.passive) == [received]
    assert received.status is Status.ACCESS_VIOLATION
    broken(connected)


def test_receive_completes_canceled_by_the_end_of_the_endpoint(end: End) -> None:
    result = nd.Result()
    end.endpoint.receive(result, None)
    end.endpoint.close()
    assert end.reap() == [result]
    assert result.status is Status.CANCELED


# -- Bind and Invalidate --


def test_bind_success_gives_a_descriptor_that_is_valid_at_once(connected: Pair) -> None:
    """It travels in the next Send, before the Bind was reaped."""
    active, passive = connected.active, connected.passive
    memory, sink = active.memory(100), passive.memory(100)
    memory.put(b"0123456789", 50)
    window = active.adapter.create_memory_window()
    told = nd.Result()
    passive.endpoint.receive(told, sink.sge())
    descriptor = active.endpoint.bind(
        nd.Result(), memory.handle, window, memory.address + 50, 10, READ
    )
    active.endpoint.send(nd.Result(), nd.Sge(descriptor.pack(), 20, None))
    assert passive.reap() == [told]
    seen = nd.MwDescriptor.unpack(sink.get(20))
    assert seen == descriptor
    assert sink.get(20) == (
        (memory.address + 50).to_bytes(8, "big") + (10).to_bytes(8, "big")
    ) + descriptor.token.to_bytes(4, "big")
    result = done(passive, passive.endpoint.read, sink.sge(20, 4), seen, 3)
    assert (result.status, result.bytes_transferred) == (Status.SUCCESS, 4)
    assert sink.get(4, 20) == b"3456"
    window.close()


def test_bind_completes_success_anew_after_invalidate(connected: Pair) -> None:
    memory, window, first = target(connected)
    end = connected.passive
    assert done(end, end.endpoint.invalidate, window).status is Status.SUCCESS
    again = nd.Result()
    second = end.endpoint.bind(again, memory.handle, window, memory.address, 16, READ)
    assert end.reap() == [again]
    assert (again.status, again.bytes_transferred) == (Status.SUCCESS, 0)
    assert second.token != first.token


def test_bind_completes_invalid_request_when_it_is_bound(connected: Pair) -> None:
    memory, window, _ = target(connected)
    end = connected.passive
    result = nd.Result()
    end.endpoint.bind(result, memory.handle, window, memory.address, 8, READ)
    assert end.reap() == [result]
    assert result.status is Status.INVALID_REQUEST


def test_bind_completes_canceled_when_the_connection_is_over(connected: Pair) -> None:
    end = connected.active
    memory = end.memory(8)
    connected.hang_up(connected.passive)
    result = nd.Result()
    with end.adapter.create_memory_window() as window:
        end.endpoint.bind(result, memory.handle, window, memory.address, 8, READ)
        assert end.reap() == [result]
    assert result.status is Status.CANCELED
    end.adapter.deregister_memory(memory.handle).result(WAIT)


def bad_bind(pair: Pair, parameter: int, *, offset: int = 0, **changes: Any) -> None:
    end = pair.active
    memory = end.memory(64)
    window = end.adapter.create_memory_window()
    values: dict[str, Any] = {
        "memory_handle": memory.handle,
        "memory_window": window,
        "address": memory.address + offset,
        "length": 8,
        "flags": READ,
    } | changes
    with nd_error(Status[f"INVALID_PARAMETER_{parameter}"], match="bind"):
        end.endpoint.bind(nd.Result(), **values)
    window.close()


def test_bind_invalid_parameter_2_with_a_bad_handle(connected: Pair) -> None:
    dead = connected.active.memory(8).handle
    connected.active.adapter.deregister_memory(dead).result(WAIT)
    for handle in (0, None, dead, connected.passive.memory(8).handle ^ 1):
        bad_bind(connected, 2, memory_handle=handle)


def test_bind_invalid_parameter_3_with_a_bad_window(connected: Pair) -> None:
    with connected.passive.adapter.create_memory_window() as foreign:
        bad_bind(connected, 3, memory_window=foreign)
    bad_bind(connected, 3, memory_window=None)


def test_bind_invalid_parameter_4_when_it_begins_outside(connected: Pair) -> None:
    bad_bind(connected, 4, offset=-1)
    bad_bind(connected, 4, offset=65)


def test_bind_invalid_parameter_5_when_it_ends_outside(connected: Pair) -> None:
    bad_bind(connected, 5, offset=60)
    bad_bind(connected, 5, length=1 << 65)


def test_bind_invalid_parameter_6_without_a_right_or_with_other_flags(connected: Pair) -> None:
    for flags in (0, 0x1, 0x4 | READ, 0x20 | READ):
        bad_bind(connected, 6, flags=flags)


def test_bind_connection_invalid_before_the_connection(end: End) -> None:
    memory = end.memory(8)
    with end.adapter.create_memory_window() as window, nd_error(Status.CONNECTION_INVALID):
        end.endpoint.bind(nd.Result(), memory.handle, window, memory.address, 8, READ)


def test_bind_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(rnr_timeout=120.0, **FEW).connect()
    end = pair.active
    memory = end.memory(8)
    for _ in range(2):
        end.endpoint.send(nd.Result(), None)
    with end.adapter.create_memory_window() as window:
        with nd_error(Status.NO_MORE_ENTRIES):
            end.endpoint.bind(nd.Result(), memory.handle, window, memory.address, 8, READ)
        with nd_error(Status.NO_MORE_ENTRIES):
            end.endpoint.invalidate(nd.Result(), window)


def test_invalidate_completes_success_and_is_final(connected: Pair) -> None:
    memory, window, descriptor = target(connected)
    passive, active = connected.passive, connected.active
    result = done(passive, passive.endpoint.invalidate, window)
    assert (result.status, result.bytes_transferred) == (Status.SUCCESS, 0)
    before = memory.get(256)
    source = active.memory(8)
    refused = done(active, active.endpoint.write, source.sge(), descriptor, 0)
    assert refused.status is Status.REMOTE_ERROR
    assert memory.get(256) == before


def test_invalidate_success_of_a_silent_one(connected: Pair) -> None:
    _, window, _ = target(connected)
    connected.passive.endpoint.invalidate(nd.Result(), window, 0x1)
    assert connected.passive.cq.get_results() == []


def test_invalidate_completes_invalidation_error_when_it_is_not_bound(connected: Pair) -> None:
    end = connected.active
    with end.adapter.create_memory_window() as window:
        result = done(end, end.endpoint.invalidate, window)
    assert result.status is Status.INVALIDATION_ERROR
    assert result.status is Status.INVALID_REQUEST, "version 1 cannot tell the two"


def test_invalidate_completes_canceled_when_the_connection_is_over(connected: Pair) -> None:
    _, window, _ = target(connected)
    connected.hang_up(connected.active)
    result = done(connected.passive, connected.passive.endpoint.invalidate, window)
    assert result.status is Status.CANCELED


def test_invalidate_connection_invalid_before_the_connection(end: End) -> None:
    with end.adapter.create_memory_window() as window, nd_error(Status.CONNECTION_INVALID):
        end.endpoint.invalidate(nd.Result(), window)


def test_invalidate_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(rnr_timeout=120.0, **FEW).connect()
    for _ in range(2):
        pair.active.endpoint.send(nd.Result(), None)
    with pair.active.adapter.create_memory_window() as window, nd_error(Status.NO_MORE_ENTRIES):
        pair.active.endpoint.invalidate(nd.Result(), window)


def test_invalidate_invalid_parameter_2_with_a_bad_window(connected: Pair) -> None:
    with connected.passive.adapter.create_memory_window() as foreign:
        for window in (foreign, None):
            with nd_error(Status.INVALID_PARAMETER_2):
                connected.active.endpoint.invalidate(nd.Result(), window)  # type: ignore[arg-type]


def test_invalidate_invalid_parameter_3_with_other_flags(connected: Pair) -> None:
    with connected.active.adapter.create_memory_window() as window:
        for flags in (0x4, READ, 0x20):
            with nd_error(Status.INVALID_PARAMETER_3):
                connected.active.endpoint.invalidate(nd.Result(), window, flags)


# -- Read and Write --


def test_read_completes_success_with_its_bytes(connected: Pair) -> None:
    memory, _, descriptor = target(connected)
    memory.put(b"remote bytes", 100)
    end = connected.active
    sink = end.memory(64)
    result = done(end, end.endpoint.read, [sink.sge(0, 12)], descriptor, 100)
    assert (result.status, result.bytes_transferred) == (Status.SUCCESS, 12)
    assert sink.get(12) == b"remote bytes"


def test_read_success_of_nothing_proves_life(connected: Pair) -> None:
    _, _, descriptor = target(connected)
    end = connected.active
    result = done(end, end.endpoint.read, None, descriptor, 256)
    assert (result.status, result.bytes_transferred) == (Status.SUCCESS, 0)


def test_write_completes_success_with_its_bytes(connected: Pair) -> None:
    memory, _, descriptor = target(connected)
    end = connected.active
    source = end.memory(64)
    source.put(b"registered")
    sges = [nd.Sge(b"inline, ", 8, None), source.sge(0, 10)]
    result = done(end, end.endpoint.write, sges, descriptor, 200)
    assert (result.status, result.bytes_transferred) == (Status.SUCCESS, 18)
    assert memory.get(18, 200) == b"inline, registered"


def test_write_success_consumes_no_receive(connected: Pair) -> None:
    """A8."""
    _, _, descriptor = target(connected)
    waiting = nd.Result()
    connected.passive.endpoint.receive(waiting, None)
    end = connected.active
    assert done(end, end.endpoint.write, None, descriptor, 0).status is Status.SUCCESS
    assert connected.passive.cq.get_results() == []


def wrong_targets(descriptor: nd.MwDescriptor) -> list[tuple[nd.MwDescriptor, int]]:
    other = nd.MwDescriptor(descriptor.base, descriptor.length, descriptor.token ^ 1)
    high = nd.MwDescriptor((1 << 64) - 4, 256, descriptor.token)
    return [(descriptor, 253), (descriptor, 1 << 63), (other, 0), (high, 8)]


@pytest.mark.parametrize("name", ["read", "write"])
@pytest.mark.parametrize("offset", [-1, -(1 << 70), 1 << 64, 1 << 70])
def test_an_offset_that_is_no_64_bit_number_is_a_mistake_of_the_caller(
    connected: Pair, name: str, offset: int
) -> None:
    _, _, descriptor = target(connected)
    end, result = connected.active, nd.Result()
    sge = end.memory(64).sge(0, 4)
    with nd_error(Status.INVALID_PARAMETER_5, match=f"Endpoint.{name}: offset {offset}") as caught:
        getattr(end.endpoint, name)(result, sge, descriptor, offset)
    assert isinstance(caught.value, ValueError)
    assert done(end, getattr(end.endpoint, name), sge, descriptor, 0).status is Status.SUCCESS


@pytest.mark.parametrize("case", range(4))
def test_read_completes_remote_error_when_the_target_refuses(connected: Pair, case: int) -> None:
    _, _, descriptor = target(connected)
    end = connected.active
    wrong, offset = wrong_targets(descriptor)[case]
    result = done(end, end.endpoint.read, end.memory(64).sge(0, 4), wrong, offset)
    assert (result.status, result.bytes_transferred) == (Status.REMOTE_ERROR, 0)
    broken(connected)


@pytest.mark.parametrize("case", range(4))
def test_write_completes_remote_error_when_the_target_refuses(connected: Pair, case: int) -> None:
    memory, _, descriptor = target(connected)
    before = memory.get(256)
    end = connected.active
    wrong, offset = wrong_targets(descriptor)[case]
    result = done(end, end.endpoint.write, end.memory(64).sge(0, 4), wrong, offset)
    assert result.status is Status.REMOTE_ERROR
    broken(connected)
    assert memory.get(256) == before


@pytest.mark.parametrize(("right", "name"), [(READ, "write"), (WRITE, "read")])
def test_rights_are_those_of_the_bind(connected: Pair, right: int, name: str) -> None:
    _, _, descriptor = target(connected, right)
    end = connected.active
    post = getattr(end.endpoint, name)
    result = done(end, post, end.memory(64).sge(0, 4), descriptor, 0)
    assert result.status is Status.REMOTE_ERROR


@pytest.mark.parametrize("inline", [False, True])
def test_read_completes_access_violation_into_what_is_not_registered(
    connected: Pair, inline: bool
) -> None:
    _, _, descriptor = target(connected)
    end = connected.active
    sink = end.memory(8)
    bad = nd.Sge(bytearray(8), 8, None) if inline else nd.Sge(sink.address, 9, sink.handle)
    assert done(end, end.endpoint.read, bad, descriptor, 0).status is Status.ACCESS_VIOLATION


def test_write_completes_access_violation_from_what_is_not_registered(connected: Pair) -> None:
    _, _, descriptor = target(connected)
    end = connected.active
    source = end.memory(8)
    bad = nd.Sge(source.address, 9, source.handle)
    assert done(end, end.endpoint.write, bad, descriptor, 0).status is Status.ACCESS_VIOLATION


def test_read_completes_invalid_request_without_a_read_limit(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair(outbound_read_limit=0).connect()
    _, _, descriptor = target(pair)
    end = pair.active
    result = done(end, end.endpoint.read, end.memory(8).sge(), descriptor, 0)
    assert result.status is Status.INVALID_REQUEST


def behind_a_waiting_send(pair: Pair, name: str) -> nd.Result:
    _, _, descriptor = target(pair)
    end = pair.active
    blocked, result = nd.Result(), nd.Result()
    end.endpoint.send(blocked, None)
    getattr(end.endpoint, name)(result, end.memory(8).sge(), descriptor, 0)
    pair.hang_up(pair.passive)
    assert end.reap(2) == [blocked, result]
    return result


def test_read_completes_canceled_behind_a_send_that_ended(patient: Pair) -> None:
    assert behind_a_waiting_send(patient, "read").status is Status.CANCELED


def test_write_completes_canceled_behind_a_send_that_ended(patient: Pair) -> None:
    assert behind_a_waiting_send(patient, "write").status is Status.CANCELED


# -- SendAndInvalidate --


def told_window(pair: Pair) -> tuple[Memory, nd.MemoryWindow, nd.MwDescriptor, nd.Result]:
    told = nd.Result()
    memory = pair.passive.memory(256)
    window, descriptor = pair.window(pair.passive, memory, READ | WRITE, told)
    return memory, window, descriptor, told


@pytest.mark.parametrize("length", [0, 40, 2000, 1 << 17])
def test_send_and_invalidate_completes_success_and_tells_the_owner(
    connected: Pair, length: int
) -> None:
    """A13: the window's result comes right after the Receive; silence does not suppress it."""
    memory, _, descriptor, told = told_window(connected)
    active, passive = connected.active, connected.passive
    source, sink = active.memory(1 << 17), passive.memory(1 << 17)
    source.put(b"\x5a" * length)
    received, sent = nd.Result(), nd.Result()
    passive.endpoint.receive(received, sink.sge())
    active.endpoint.send_and_invalidate(sent, source.sge(0, length), descriptor)
    seen = connected.both_reap(passive, 2)
    assert seen[0] is received
    assert seen[1] is told
    assert connected.both_reap(active) == [sent]
    assert (received.status, received.bytes_transferred) == (Status.SUCCESS, length)
    assert (told.status, told.bytes_transferred) == (Status.SUCCESS, 0)
    assert (sent.status, sent.bytes_transferred) == (Status.SUCCESS, length)
    assert sink.get(length) == b"\x5a" * length
    before = memory.get(256)
    assert done(active, active.endpoint.write, source.sge(0, 4), descriptor, 0).status is (
        Status.REMOTE_ERROR
    )
    assert memory.get(256) == before


def test_send_and_invalidate_success_without_a_result_to_tell(connected: Pair) -> None:
    """A11."""
    _, window, descriptor = target(connected)
    received = nd.Result()
    connected.passive.endpoint.receive(received, None)
    connected.active.endpoint.send_and_invalidate(nd.Result(), None, descriptor, 0x1)
    assert connected.both_reap(connected.passive) == [received]
    assert connected.active.cq.get_results() == []
    memory = connected.passive.memory(64)
    again = nd.Result()
    connected.passive.endpoint.bind(again, memory.handle, window, memory.address, 64, READ)
    assert connected.passive.reap() == [again]
    assert again.status is Status.SUCCESS, "it may be bound anew"


def test_send_and_invalidate_success_names_the_window_by_its_token_alone(connected: Pair) -> None:
    """A14."""
    _, _, descriptor, told = told_window(connected)
    received = nd.Result()
    connected.passive.endpoint.receive(received, None)
    stale = nd.MwDescriptor(1, 2, descriptor.token)
    connected.active.endpoint.send_and_invalidate(nd.Result(), None, stale)
    assert connected.both_reap(connected.passive, 2) == [received, told]


def invalidated_twice(pair: Pair) -> tuple[nd.Result, nd.Result]:
    """The owner was first: the Send that comes too late ends the connection."""
    _, window, descriptor, _ = told_window(pair)
    active, passive = pair.active, pair.passive
    received, sent = nd.Result(), nd.Result()
    assert done(passive, passive.endpoint.invalidate, window).status is Status.SUCCESS
    passive.endpoint.receive(received, None)
    active.endpoint.send_and_invalidate(sent, None, descriptor)
    assert pair.both_reap(passive) == [received], "no word of the window"
    assert pair.both_reap(active) == [sent]
    broken(pair)
    return sent, received


def test_send_and_invalidate_completes_invalidation_error_when_it_comes_too_late(
    connected: Pair,
) -> None:
    sent, _ = invalidated_twice(connected)
    assert sent.status in (Status.INVALIDATION_ERROR, Status.REMOTE_ERROR)


def test_receive_completes_invalidation_error_when_there_is_no_such_window(
    connected: Pair,
) -> None:
    _, received = invalidated_twice(connected)
    assert (received.status, received.bytes_transferred) == (Status.INVALIDATION_ERROR, 0)


def test_send_and_invalidate_completes_access_violation_outside_the_registration(
    connected: Pair,
) -> None:
    _, _, descriptor, _ = told_window(connected)
    end = connected.active
    memory = end.memory(64)
    bad = nd.Sge(memory.address, 65, memory.handle)
    result = done(end, end.endpoint.send_and_invalidate, bad, descriptor)
    assert result.status is Status.ACCESS_VIOLATION


def test_send_and_invalidate_completes_canceled_when_the_peer_disconnects(patient: Pair) -> None:
    _, _, descriptor, _ = told_window(patient)
    result = nd.Result()
    patient.active.endpoint.send_and_invalidate(result, None, descriptor)
    patient.hang_up(patient.passive)
    assert patient.active.reap() == [result]
    assert result.status is Status.CANCELED


def test_send_and_invalidate_completes_timeout_when_no_receive_comes(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair(rnr_timeout=0.1).connect()
    _, _, descriptor, _ = told_window(pair)
    result = nd.Result()
    pair.active.endpoint.send_and_invalidate(result, None, descriptor)
    assert pair.both_reap(pair.active) == [result]
    assert result.status is Status.TIMEOUT


def test_send_and_invalidate_completes_remote_error_when_the_receive_is_too_small(
    connected: Pair,
) -> None:
    _, _, descriptor, _ = told_window(connected)
    result = nd.Result()
    connected.passive.endpoint.receive(nd.Result(), None)
    connected.active.endpoint.send_and_invalidate(result, nd.Sge(b"x", 1, None), descriptor)
    assert connected.both_reap(connected.active) == [result]
    assert result.status is Status.REMOTE_ERROR


# -- batches --


def test_start_request_batch_success_changes_no_outcome(connected: Pair) -> None:
    """Requests between the calls come out as without them, in order, submitted or not."""
    active, passive = connected.active, connected.passive
    sink = passive.memory(16 * 8)
    received, sent = [nd.Result() for _ in range(8)], [nd.Result() for _ in range(8)]
    passive.endpoint.start_request_batch()
    for number, result in enumerate(received):
        passive.endpoint.receive(result, sink.sge(number * 16, 16))
    passive.endpoint.submit_request_batch()
    active.endpoint.start_request_batch()
    active.endpoint.start_request_batch()
    for number, result in enumerate(sent):
        active.endpoint.send(result, nd.Sge(bytes([number]) * 9, 9, None))
    assert connected.both_reap(active, 8) == sent, "a poll leaves nothing stuck"
    assert connected.both_reap(passive, 8) == received
    assert [sink.get(9, number * 16) for number in range(8)] == [bytes([n]) * 9 for n in range(8)]


def test_submit_request_batch_success_without_a_start(connected: Pair) -> None:
    connected.active.endpoint.submit_request_batch()
    connected.active.endpoint.submit_request_batch()
    received = nd.Result()
    connected.passive.endpoint.receive(received, None)
    connected.active.endpoint.send(nd.Result(), None)
    assert connected.passive.reap() == [received]


@pytest.mark.parametrize("how", ["flush", "disconnect", "close"])
def test_a_batch_that_is_never_submitted_ends_with_its_endpoint(connected: Pair, how: str) -> None:
    end = connected.active
    results = [nd.Result() for _ in range(3)]
    end.endpoint.start_request_batch()
    for result in results:
        end.endpoint.receive(result, None)
    if how == "disconnect":
        end.connector.disconnect().result(WAIT)
    else:
        getattr(end.endpoint, how)()
    assert end.reap(3) == results
    assert {result.status for result in results} == {Status.CANCELED}


REFUSED: dict[str, Callable[[Pair], Any]] = {
    "flags of Send": lambda pair: pair.active.endpoint.send(nd.Result(), None, 0x40),
    "flags of Write": lambda pair: pair.active.endpoint.write(
        nd.Result(), None, nd.MwDescriptor(0, 0, 1), 0, 0x40
    ),
    "too many elements": lambda pair: pair.active.endpoint.send(
        nd.Result(), [nd.Sge(b"x", 1, None)] * 17
    ),
    "too much inline": lambda pair: pair.active.endpoint.send(
        nd.Result(), nd.Sge(bytes(1 << 20), None, None)
    ),
    "no memory handle": lambda pair: pair.active.endpoint.bind(
        nd.Result(), 0xDEAD, pair.active.adapter.create_memory_window(), 0, 1, 0x08
    ),
    "flags of Invalidate": lambda pair: pair.active.endpoint.invalidate(
        nd.Result(), pair.active.adapter.create_memory_window(), 0x40
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_call_that_is_refused_ends_a_batch(connected: Pair, how: str) -> None:
    """What was held back arrives, though nothing else submits it."""
    received = nd.Result()
    connected.passive.endpoint.receive(received, None)
    connected.active.endpoint.start_request_batch()
    connected.active.endpoint.send(nd.Result(), None)
    assert connected.passive.cq.get_results(1) == [], "held back"
    with pytest.raises(shmnd.NdError):
        REFUSED[how](connected)
    assert connected.passive.reap() == [received]


# -- Flush --


def test_flush_success_of_an_endpoint_that_never_had_a_peer(end: End) -> None:
    results = [nd.Result() for _ in range(3)]
    for result in results:
        end.endpoint.receive(result, None)
    end.endpoint.flush()
    assert end.reap(3) == results
    assert {result.status for result in results} == {Status.CANCELED}


def test_flush_success_ends_a_connection_on_both_sides(patient: Pair) -> None:
    end, other = patient.active, patient.passive
    sent, received, far = nd.Result(), nd.Result(), nd.Result()
    end.endpoint.send(sent, None)
    end.endpoint.receive(received, None)
    end.endpoint.flush()
    assert set(map(id, end.reap(2))) == {id(sent), id(received)}
    assert sent.status is received.status is Status.CANCELED
    broken(patient)
    other.endpoint.receive(far, None)
    assert other.reap() == [far]
    assert far.status is Status.CANCELED


def test_flush_success_touches_no_other_endpoint(make_end: Callable[..., End]) -> None:
    end = make_end()
    other = end.adapter.create_connector()
    endpoint = other.create_endpoint(end.cq, end.cq, 4, 4, 1, 1)
    end.kept += [other, endpoint]
    kept = nd.Result()
    endpoint.receive(kept, None)
    end.endpoint.receive(nd.Result(), None)
    end.endpoint.flush()
    end.reap()
    with pytest.raises(Late):
        end.reap(timeout=0.02)
    endpoint.close()
    assert end.reap() == [kept]


# -- version 2 on the other side --


def test_version_two_sends_and_receives(make_end: Callable[..., End]) -> None:
    """Both know Send, Receive, windows; SendAndInvalidate works upon a version-2 window."""
    end = make_end()
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(64)
        qp = adapter.create_queue_pair(cq, cq, max_receive_sge=1)
        connector = adapter.create_connector()
        waiting = end.listen.get_connection_request(end.connector)
        connecting = connector.connect(
            qp, ("127.0.0.1", end.listen.assigned_port), 4, 4, b"from version 2"
        )
        waiting.result(WAIT)
        assert end.connector.get_connection_data() == (4, 4, b"from version 2")
        accepting = end.connector.accept(end.endpoint, b"from version 1")
        connecting.result(WAIT)
        assert connector.get_private_data() == b"from version 1"
        connector.complete_connect().result(WAIT)
        accepting.result(WAIT)

        array = adapter.allocate(256)
        region = adapter.create_memory_region()
        region.register(array, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(WAIT)
        sink = end.memory(64)
        received = nd.Result()
        end.endpoint.receive(received, sink.sge())
        array[:5] = list(b"hello")
        qp.send(region.sge(0, 5), "sent")
        assert end.reap() == [received]
        assert sink.get(5) == b"hello"
        assert cq.wait(timeout=WAIT)[0].request_context == "sent"

        window = adapter.create_memory_window()
        qp.bind(region, window, region.address, 256, "bound", flags=READ | WRITE)
        assert cq.wait(timeout=WAIT)[0].status is Status.SUCCESS
        descriptor = nd.MwDescriptor(region.address, 256, window.remote_token)
        assert done(end, end.endpoint.write, sink.sge(0, 5), descriptor, 9).status is (
            Status.SUCCESS
        )
        assert bytes(array[9:14]) == b"hello"
        qp.receive(region.sge(64, 64), "received")
        last = nd.Result()
        end.endpoint.send_and_invalidate(last, nd.Sge(b"bye", 3, None), descriptor)
        (result,) = cq.wait(timeout=WAIT)
        assert (result.request_context, result.bytes_transferred) == ("received", 3)
        assert end.reap() == [last]
        assert last.status is Status.SUCCESS
        refused = done(end, end.endpoint.write, sink.sge(0, 5), descriptor, 9)
        assert refused.status is Status.REMOTE_ERROR
        for each in (connector, qp, cq):
            each.close()
