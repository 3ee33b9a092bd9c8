# SPDX-License-Identifier: Apache-2.0
"""INDEndpoint: Read, Write and SendAndInvalidate."""

from collections.abc import Callable

import pytest

import shmnd.nd1 as nd
from nd1.endpoint.endpoint_kit import READ, WRITE, broken, done, target
from nd1.ends import Memory, Pair
from shmnd import Status
from spi.harness import nd_error


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
def test_an_offset_outside_64_bits_is_a_mistake_of_the_caller(
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
def test_rights_come_from_the_bind(connected: Pair, right: int, name: str) -> None:
    _, _, descriptor = target(connected, right)
    end = connected.active
    post = getattr(end.endpoint, name)
    result = done(end, post, end.memory(64).sge(0, 4), descriptor, 0)
    assert result.status is Status.REMOTE_ERROR


@pytest.mark.parametrize("inline", [False, True])
def test_read_completes_access_violation_into_unregistered_memory(
    connected: Pair, inline: bool
) -> None:
    _, _, descriptor = target(connected)
    end = connected.active
    sink = end.memory(8)
    bad = nd.Sge(bytearray(8), 8, None) if inline else nd.Sge(sink.address, 9, sink.handle)
    assert done(end, end.endpoint.read, bad, descriptor, 0).status is Status.ACCESS_VIOLATION


def test_write_completes_access_violation_from_unregistered_memory(connected: Pair) -> None:
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
def notified_window(pair: Pair) -> tuple[Memory, nd.MemoryWindow, nd.MwDescriptor, nd.Result]:
    notice = nd.Result()
    memory = pair.passive.memory(256)
    window, descriptor = pair.window(pair.passive, memory, READ | WRITE, notice)
    return memory, window, descriptor, notice


@pytest.mark.parametrize("length", [0, 40, 2000, 1 << 17])
def test_send_and_invalidate_completes_success_and_notifies_the_owner(
    connected: Pair, length: int
) -> None:
    """A13: the window's result comes right after the Receive; silence does not suppress it."""
    memory, _, descriptor, notice = notified_window(connected)
    active, passive = connected.active, connected.passive
    source, sink = active.memory(1 << 17), passive.memory(1 << 17)
    source.put(b"\x5a" * length)
    received, sent = nd.Result(), nd.Result()
    passive.endpoint.receive(received, sink.sge())
    active.endpoint.send_and_invalidate(sent, source.sge(0, length), descriptor)
    seen = connected.both_reap(passive, 2)
    assert seen[0] is received
    assert seen[1] is notice
    assert connected.both_reap(active) == [sent]
    assert (received.status, received.bytes_transferred) == (Status.SUCCESS, length)
    assert (notice.status, notice.bytes_transferred) == (Status.SUCCESS, 0)
    assert (sent.status, sent.bytes_transferred) == (Status.SUCCESS, length)
    assert sink.get(length) == b"\x5a" * length
    before = memory.get(256)
    assert done(active, active.endpoint.write, source.sge(0, 4), descriptor, 0).status is (
        Status.REMOTE_ERROR
    )
    assert memory.get(256) == before


def test_send_and_invalidate_success_without_a_result_of_the_owner(connected: Pair) -> None:
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
    _, _, descriptor, notice = notified_window(connected)
    received = nd.Result()
    connected.passive.endpoint.receive(received, None)
    stale = nd.MwDescriptor(1, 2, descriptor.token)
    connected.active.endpoint.send_and_invalidate(nd.Result(), None, stale)
    assert connected.both_reap(connected.passive, 2) == [received, notice]


def invalidated_twice(pair: Pair) -> tuple[nd.Result, nd.Result]:
    """The owner was first: the Send that comes too late ends the connection."""
    _, window, descriptor, _ = notified_window(pair)
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
    _, _, descriptor, _ = notified_window(connected)
    end = connected.active
    memory = end.memory(64)
    bad = nd.Sge(memory.address, 65, memory.handle)
    result = done(end, end.endpoint.send_and_invalidate, bad, descriptor)
    assert result.status is Status.ACCESS_VIOLATION


def test_send_and_invalidate_completes_canceled_when_the_peer_disconnects(patient: Pair) -> None:
    _, _, descriptor, _ = notified_window(patient)
    result = nd.Result()
    patient.active.endpoint.send_and_invalidate(result, None, descriptor)
    patient.hang_up(patient.passive)
    assert patient.active.reap() == [result]
    assert result.status is Status.CANCELED


def test_send_and_invalidate_completes_timeout_when_no_receive_comes(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair(rnr_timeout=0.1).connect()
    _, _, descriptor, _ = notified_window(pair)
    result = nd.Result()
    pair.active.endpoint.send_and_invalidate(result, None, descriptor)
    assert pair.both_reap(pair.active) == [result]
    assert result.status is Status.TIMEOUT


def test_send_and_invalidate_completes_remote_error_when_the_receive_is_too_small(
    connected: Pair,
) -> None:
    _, _, descriptor, _ = notified_window(connected)
    result = nd.Result()
    connected.passive.endpoint.receive(nd.Result(), None)
    connected.active.endpoint.send_and_invalidate(result, nd.Sge(b"x", 1, None), descriptor)
    assert connected.both_reap(connected.active) == [result]
    assert result.status is Status.REMOTE_ERROR
