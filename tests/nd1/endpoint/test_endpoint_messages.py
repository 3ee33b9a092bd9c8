# SPDX-License-Identifier: Apache-2.0
"""INDEndpoint: Send and Receive."""

from collections.abc import Callable
from typing import Any

import pytest

import shmnd.nd1 as nd
from nd1.endpoint.endpoint_kit import FEW, broken, done
from nd1.ends import End, Pair
from shmnd import OpFlag, Status
from spi.harness import nd_error


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


@pytest.mark.parametrize("call", ["send", "send_and_invalidate", "write"])
def test_a_mixed_list_is_posted_with_its_own_data(
    make_pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Another thread posts while it is prepared, and has the same piece of memory for its copy."""
    pair = make_pair(rnr_timeout=120.0, outbound_entries=1).connect()
    source, sink, target = pair.active.memory(8), pair.passive.memory(64), pair.passive.memory(64)
    _, descriptor = pair.window(pair.passive, target, OpFlag.ALLOW_WRITE)
    source.put(b"+")
    original = nd.Endpoint._staged

    def patched(self: nd.Endpoint, *args: Any) -> Any:
        prepared = original(self, *args)
        monkeypatch.setattr(nd.Endpoint, "_staged", original)
        self.send(nd.Result(), [nd.Sge(b"first", 5, None), source.sge(0, 1)])
        assert pair.both_reap(pair.active)
        return prepared

    for offset in (0, 16):
        pair.passive.endpoint.receive(nd.Result(), sink.sge(offset, 16))
    monkeypatch.setattr(nd.Endpoint, "_staged", patched)
    more = {"send": [], "send_and_invalidate": [descriptor], "write": [descriptor, 0]}[call]
    getattr(pair.active.endpoint, call)(
        nd.Result(), [nd.Sge(b"other", 5, None), source.sge(0, 1)], *more
    )
    assert pair.both_reap(pair.active)
    assert sink.get(6) == b"first+"
    assert (target.get(6) if call == "write" else sink.get(6, 16)) == b"other+"


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
def test_receive_completes_access_violation_into_unregistered_memory(
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


@pytest.mark.parametrize("length", [0, 8])
def test_send_completes_remote_error_when_the_handle_of_its_receive_was_deregistered(
    connected: Pair, length: int
) -> None:
    """Also where the Receive has no bytes, and where its sender has seen it before."""
    active, passive = connected.active, connected.passive
    source, sink = active.memory(8), passive.memory(8)
    received, sent = nd.Result(), nd.Result()
    passive.endpoint.receive(nd.Result(), None)
    passive.endpoint.receive(received, [sink.sge(0, length)])
    active.endpoint.send(nd.Result(), None)
    connected.both_reap(passive)
    connected.both_reap(active)
    passive.adapter.deregister_memory(sink.handle).result(5)
    active.endpoint.send(sent, [source.sge(0, length)])
    assert connected.both_reap(passive) == [received]
    assert connected.both_reap(active) == [sent]
    assert (received.status, sent.status) == (Status.ACCESS_VIOLATION, Status.REMOTE_ERROR)
