# SPDX-License-Identifier: Apache-2.0
"""INDConnector: the endpoint, and the connection of it."""

import resource
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import shmnd.nd1 as nd
from nd1.ends import End, Pair
from nd1.test_adapter import at_the_limit
from shmnd import NdError, Status
from shmnd.address import pack_sockaddr
from spi.harness import UNSERVED, WAIT, nd_error, outcome, wait_until


def status_of(call: Callable[[], object]) -> Status:
    """What a call says that gives something else than an operation."""

    def forget() -> None:
        call()

    return outcome(forget)


# -- CreateEndpoint --
def test_create_endpoint_success_at_the_limits(end: End) -> None:
    info = end.adapter.query()
    endpoint = end.connector.create_endpoint(
        end.cq,
        end.cq,
        info.max_inbound_requests,
        info.max_outbound_requests,
        info.max_inbound_sge,
        info.max_outbound_sge,
        info.max_inbound_read_limit,
        info.max_outbound_read_limit,
    )
    assert endpoint.max_inline_data == info.max_inline_data
    endpoint.close()
    end.connector.create_endpoint(end.cq, end.cq, 0, 0, 0, 0).close()


def bad_queue(make_end: Callable[..., End], place: int) -> None:
    end, stranger = make_end(), make_end()
    closed = end.adapter.create_completion_queue(8)
    closed.close()
    for bad in (None, stranger.cq, closed, end.adapter._core.create_completion_queue(8)):
        queues: list[Any] = [end.cq, end.cq]
        queues[place] = bad
        with nd_error(Status[f"INVALID_PARAMETER_{place + 1}"], match="create_endpoint"):
            end.connector.create_endpoint(*queues, 1, 1, 1, 1)


def test_create_endpoint_invalid_parameter_1_when_the_inbound_queue_is_bad(
    make_end: Callable[..., End],
) -> None:
    bad_queue(make_end, 0)


def test_create_endpoint_invalid_parameter_2_when_the_outbound_queue_is_bad(
    make_end: Callable[..., End],
) -> None:
    bad_queue(make_end, 1)


def beyond(end: End, number: int, limit: str) -> None:
    most = getattr(end.adapter.query(), limit)
    for bad in (most + 1, -1, "1"):
        values: list[Any] = [1, 1, 1, 1, 0, 0]
        values[number - 3] = bad
        with nd_error(Status[f"INVALID_PARAMETER_{number}"], match=str(most)):
            end.connector.create_endpoint(end.cq, end.cq, *values)


def test_create_endpoint_invalid_parameter_3_beyond_the_receives(end: End) -> None:
    beyond(end, 3, "max_inbound_requests")


def test_create_endpoint_invalid_parameter_4_beyond_the_requests(end: End) -> None:
    beyond(end, 4, "max_outbound_requests")


def test_create_endpoint_invalid_parameter_5_beyond_the_inbound_elements(end: End) -> None:
    beyond(end, 5, "max_inbound_sge")


def test_create_endpoint_invalid_parameter_6_beyond_the_outbound_elements(end: End) -> None:
    beyond(end, 6, "max_outbound_sge")


def test_create_endpoint_invalid_parameter_7_beyond_the_inbound_reads(end: End) -> None:
    beyond(end, 7, "max_inbound_read_limit")


def test_create_endpoint_invalid_parameter_8_beyond_the_outbound_reads(end: End) -> None:
    beyond(end, 8, "max_outbound_read_limit")


def test_create_endpoint_the_first_wrong_parameter_is_named(end: End) -> None:
    with nd_error(Status.INVALID_PARAMETER_3):
        end.connector.create_endpoint(end.cq, end.cq, -1, -1, -1, -1, -1, -1)


def test_create_endpoint_insufficient_resources_when_the_queue_is_full(end: End) -> None:
    """A completion queue serves a limited number of endpoints."""
    with nd_error(Status.INSUFFICIENT_RESOURCES):
        for _ in range(5000):
            connector = end.adapter.create_connector()
            end.kept += [connector, connector.create_endpoint(end.cq, end.cq, 1, 1, 1, 1)]


def test_create_endpoint_not_supported_while_the_connector_has_one(end: End) -> None:
    endpoint = end.connector.create_endpoint(end.cq, end.cq, 1, 1, 1, 1)
    with nd_error(Status.NOT_SUPPORTED):
        end.connector.create_endpoint(end.cq, end.cq, 1, 1, 1, 1)
    endpoint.close()
    end.connector.create_endpoint(end.cq, end.cq, 1, 1, 1, 1).close()


def test_create_endpoint_device_removed_when_the_adapter_is_closed(end: End) -> None:
    connector, cq = end.connector, end.cq
    end.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        connector.create_endpoint(cq, cq, 1, 1, 1, 1)


# -- the peer --
def test_get_connection_data_success_before_the_endpoint_and_after(pair: Pair) -> None:
    address = pair.address()
    waiting = pair.passive.listen.get_connection_request(pair.passive.connector)
    pair.connecting = pair.active.connector.connect(
        pair.active.endpoint, address, private_data=b"abc"
    )
    waiting.result(WAIT)
    for _ in range(2):
        assert pair.passive.connector.get_connection_data() == (8, 8, b"abc")
    pair.accept()
    assert pair.passive.connector.get_connection_data()[2] == b"abc"


def test_get_connection_data_success_after_the_own_disconnect(pair: Pair) -> None:
    pair.offer(b"abc")
    pair.accept(b"yes")
    pair.active.connector.complete_connect().result(WAIT)
    pair.active.connector.disconnect().result(WAIT)
    assert pair.active.connector.get_connection_data() == (8, 8, b"yes")
    pair.passive.connector.disconnect().result(WAIT)
    assert pair.passive.connector.get_connection_data() == (8, 8, b"abc")


def test_errors_use_the_words_of_version_1_only(pair: Pair) -> None:
    pair.offer()
    pair.active.endpoint.close()
    memory = pair.passive.memory(8)
    for call in (
        lambda: pair.active.connector.reject(),
        lambda: pair.active.connector.connect(pair.active.endpoint, pair.address()),
        lambda: pair.passive.connector.complete_connect(),
        lambda: nd.Provider().open_adapter(UNSERVED),
        lambda: pair.passive.connector.connect(pair.passive.endpoint, "nowhere"),  # type: ignore
        lambda: pair.passive.adapter.register_memory((4096, 64)),
        lambda: nd.MwDescriptor(-1, 0, 0),
        lambda: pair.passive.endpoint.bind(
            nd.Result(), memory.handle, closed_window(pair.passive), memory.address, 8, 8
        ),
    ):
        with pytest.raises(NdError) as caught:
            call()
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        for word in ("QueuePair", "queue pair", "MemoryRegion", "Listener", "initiator"):
            assert word not in str(caught.value)


def closed_window(end: End) -> nd.MemoryWindow:
    window = end.adapter.create_memory_window()
    window.close()
    return window


def test_get_connection_data_success_with_limits_crossed_over(
    make_end: Callable[..., End],
) -> None:
    """A2: the inbound limit of one side is the outbound limit of the other."""
    active = make_end(inbound_read_limit=3, outbound_read_limit=5)
    pair = Pair(active, make_end())
    pair.offer()
    assert pair.passive.connector.get_connection_data()[:2] == (5, 3)
    pair.connecting = None


def test_get_connection_data_connection_invalid_without_a_peer(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.get_connection_data()


def test_get_connection_data_connection_aborted_when_the_peer_gave_up(pair: Pair) -> None:
    """There are no limits to go by any more. To ask is harmless, and so is a Reject."""
    passive = pair.passive.connector
    pair.offer(b"abc")
    assert passive.get_connection_data() == (8, 8, b"abc")
    pair.active.connector.close()
    wait_until(lambda: status_of(passive.get_connection_data) is not Status.SUCCESS, "abandoned")
    assert status_of(passive.get_connection_data) is Status.CONNECTION_ABORTED
    assert outcome(passive.reject) is Status.CONNECTION_ABORTED


def test_get_connection_data_into_connection_aborted_when_the_peer_gave_up(pair: Pair) -> None:
    passive, buffer = pair.passive.connector, bytearray(8)
    pair.offer(b"abc")
    pair.active.connector.close()
    wait_until(lambda: status_of(passive.get_connection_data) is not Status.SUCCESS, "abandoned")
    with nd_error(Status.CONNECTION_ABORTED):
        passive.get_connection_data_into(buffer)
    assert buffer == bytes(8)


def test_get_connection_data_into_success_copies_the_data(pair: Pair) -> None:
    pair.offer(b"hello")
    buffer = bytearray(b"\xee" * 8)
    assert pair.passive.connector.get_connection_data_into(buffer) == (8, 8, 5)
    assert buffer == b"hello" + b"\xee" * 3


def test_get_connection_data_into_buffer_overflow_copies_a_part(pair: Pair) -> None:
    pair.offer(b"hello")
    buffer = bytearray(3)
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        pair.passive.connector.get_connection_data_into(buffer)
    assert buffer == b"hel"
    assert caught.value.required == 5
    assert caught.value.read_limits == (8, 8)


def test_get_connection_data_into_refuses_a_buffer_it_cannot_fill(pair: Pair) -> None:
    pair.offer(b"hello")
    for buffer in (17, b"bytes", "text"):
        with nd_error(Status.INVALID_PARAMETER_3):
            pair.passive.connector.get_connection_data_into(buffer)  # type: ignore[arg-type]


def test_get_connection_data_into_connection_invalid_without_a_peer(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.get_connection_data_into(bytearray(8))


def test_get_local_address_success_while_there_is_a_peer(pair: Pair) -> None:
    pair.offer()
    ours = pair.active.connector.get_local_address()
    assert pair.passive.connector.get_peer_address() == ours
    assert pair.passive.connector.get_local_address() == pair.address()


def test_get_local_address_connection_invalid_without_a_peer(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.get_local_address()


def test_get_local_address_into_success_packs_the_address(pair: Pair) -> None:
    pair.offer()
    for connector in (pair.active.connector, pair.passive.connector):
        for name in ("get_local_address", "get_peer_address"):
            buffer = bytearray(b"\xee" * 32)
            used = getattr(connector, f"{name}_into")(buffer)
            assert buffer[:used] == pack_sockaddr(getattr(connector, name)())
            assert buffer[used:] == b"\xee" * (32 - used)


def test_get_local_address_into_buffer_overflow_when_it_is_short(pair: Pair) -> None:
    pair.offer()
    short(pair.active.connector.get_local_address_into)


def test_get_local_address_into_connection_invalid_without_a_peer(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID, match="get_local_address_into"):
        end.connector.get_local_address_into(bytearray(32))


def test_get_peer_address_into_success_from_the_request_on(pair: Pair) -> None:
    pair.offer()
    assert pair.passive.connector.get_peer_address_into(bytearray(32)) == 16


def test_get_peer_address_into_buffer_overflow_when_it_is_short(pair: Pair) -> None:
    pair.offer()
    short(pair.passive.connector.get_peer_address_into)


def test_get_peer_address_into_connection_invalid_without_a_peer(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID, match="get_peer_address_into"):
        end.connector.get_peer_address_into(bytearray(32))


def short(fill: Callable[[bytearray], int]) -> None:
    buffer = bytearray(b"\xee" * 15)
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        fill(buffer)
    assert caught.value.required == 16
    assert buffer == b"\xee" * 15


def test_get_peer_address_success_from_the_request_on(pair: Pair) -> None:
    """A3."""
    pair.offer()
    assert pair.passive.connector.get_peer_address()[0] == "127.0.0.1"
    assert pair.active.connector.get_peer_address() == pair.address()


def test_get_peer_address_connection_invalid_without_a_peer(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.get_peer_address()


# -- the end --
def test_notify_disconnect_success_when_the_peer_disconnects(connected: Pair) -> None:
    """A4: both sides are flushed, and later requests complete CANCELED."""
    end, result, late = connected.active, nd.Result(), nd.Result()
    end.endpoint.receive(result, None)
    connected.hang_up(connected.passive)
    assert end.reap() == [result]
    assert result.status is Status.CANCELED
    end.endpoint.send(late, None)
    assert end.reap() == [late]
    assert (late.status, late.bytes_transferred) == (Status.CANCELED, 0)
    assert outcome(end.connector.notify_disconnect) is Status.SUCCESS, "at once"


def test_notify_disconnect_pending_while_it_lives(connected: Pair) -> None:
    assert connected.active.connector.notify_disconnect().status is Status.PENDING


def test_notify_disconnect_canceled_by_a_cancel(connected: Pair) -> None:
    waiting = connected.active.connector.notify_disconnect()
    connected.active.connector.cancel_overlapped_requests()
    assert waiting.status is Status.CANCELED
    assert connected.active.connector.get_overlapped_result(waiting) is Status.CANCELED


def test_notify_disconnect_connection_invalid_when_never_connected(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.notify_disconnect()


def test_disconnect_success_also_at_the_same_time(connected: Pair) -> None:
    first = connected.active.connector.disconnect()
    second = connected.passive.connector.disconnect()
    first.result(WAIT)
    second.result(WAIT)
    with nd_error(Status.CONNECTION_INVALID):  # A15
        connected.active.endpoint.send(nd.Result(), None)


def test_disconnect_connection_invalid_when_never_connected(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.disconnect()


def test_disconnect_device_removed_when_the_adapter_is_closed(connected: Pair) -> None:
    connector = connected.active.connector
    connected.active.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        connector.disconnect()


def test_a_connector_out_of_descriptors_fails(pair: Pair) -> None:
    """The passive side makes the memory of a connection."""
    pair.offer()
    endpoint = pair.passive.endpoint
    status = at_the_limit(
        resource.RLIMIT_NOFILE, 3, lambda: pair.passive.connector.accept(endpoint)
    )
    assert status is Status.INSUFFICIENT_RESOURCES
    pair.accept()


# -- what lives how long --
def test_an_accept_and_a_request_keep_their_objects(pair: Pair) -> None:
    active, passive = pair.active, pair.passive
    listen, address = passive.listen, pair.address()
    asked = listen.get_connection_request(passive.adapter.create_connector())
    refused = active.connector.connect(active.endpoint, address)
    asked.result(WAIT)
    assert outcome(lambda: refused) is Status.CONNECTION_REFUSED, "that connector is gone"
    pair.offer()
    accepting = passive.connector.accept(
        passive.connector.create_endpoint(passive.cq, passive.cq, **passive.options)
    )
    pair.connecting.result(WAIT)
    active.connector.complete_connect().result(WAIT)
    assert outcome(lambda: accepting) is Status.SUCCESS


def test_a_connection_lasts_as_long_as_its_endpoint(connected: Pair) -> None:
    connected.connecting = connected.accepting = None
    gone = weakref.ref(vars(connected.active).pop("connector")._core)
    result, received = nd.Result(), nd.Result()
    connected.passive.endpoint.receive(received, None)
    connected.active.endpoint.send(result, None)
    assert connected.passive.reap() == [received]
    assert received.status is Status.SUCCESS
    assert gone() is not None
    del vars(connected.active)["endpoint"]
    assert gone() is None
    assert outcome(connected.passive.connector.notify_disconnect) is Status.SUCCESS


def test_a_bind_keeps_its_window_until_its_result_is_taken(connected: Pair) -> None:
    end, memory, result = connected.passive, connected.passive.memory(8), nd.Result()
    descriptor = end.endpoint.bind(
        result, memory.handle, end.adapter.create_memory_window(), memory.address, 8, 8
    )
    read = nd.Result()
    connected.active.endpoint.read(read, connected.active.memory(8).sge(), descriptor, 0)
    assert connected.active.reap() == [read]
    assert read.status is Status.SUCCESS
    assert end.reap() == [result]
