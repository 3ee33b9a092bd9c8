# SPDX-License-Identifier: Apache-2.0
"""IND2Connector: every status of every call. The cells of the state tables: test_states.py."""

from collections.abc import Callable
from typing import Any

import pytest

from shmnd import Status
from spi.harness import (
    EPHEMERAL,
    FILL,
    UNSERVED,
    WAIT,
    End,
    exhaust_ports,
    final,
    nd_error,
    outcome,
    statuses,
)
from spi.pair import Pair
from spi.remote import Ends


# Bind
def test_bind_success_to_a_port_of_the_providers_choice(pair: Pair) -> None:
    pair.active.connector.bind((pair.active.host, 0))
    pair.connect()
    host, port = pair.passive.connector.get_peer_address()
    assert host == pair.active.host
    assert port in EPHEMERAL


def test_bind_success_to_a_port_of_the_callers_choice(pair: Pair) -> None:
    pair.listen()
    for port in (1, 1023, 40000, 65535):
        connector = pair.active.new_connector()
        connector.bind((pair.active.host, port))
        connecting = connector.connect(pair.active.new_qp(), pair.address)
        partner = pair.passive.new_connector()
        pair.passive.listener.get_connection_request(partner).result(timeout=WAIT)
        assert partner.get_peer_address() == (pair.active.host, port)
        assert connector.get_local_address() == (pair.active.host, port)
        partner.reject()
        assert final(connecting) == Status.CONNECTION_REFUSED


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.77.0.1"])
def test_bind_success_to_every_address_of_the_adapter(end: End, host: str) -> None:
    end.connector.bind((host, 0))


def test_bind_success_of_the_same_port_on_another_address(end: End) -> None:
    end.connector.bind(("127.0.0.1", 50123))
    end.new_connector().bind(("127.0.0.2", 50123))


def test_bind_success_again_as_soon_as_the_owner_is_closed(end: End) -> None:
    for _ in range(3):
        with end.new_connector() as connector:
            connector.bind((end.host, 50124))


def test_bind_device_removed_when_the_adapter_is_closed(end: End) -> None:
    connector = end.connector
    end.close()
    with nd_error(Status.DEVICE_REMOVED, match="bind"):
        connector.bind((end.host, 0))


@pytest.mark.parametrize("host", [UNSERVED, "2001:db8::1", "8.8.8.8"])
def test_bind_invalid_address_when_it_is_none_of_the_adapter(end: End, host: str) -> None:
    with nd_error(Status.INVALID_ADDRESS, match=host) as caught:
        end.connector.bind((host, 0))
    assert isinstance(caught.value, ValueError)
    end.connector.bind((end.host, 0))


@pytest.mark.parametrize(
    "address", [None, 17, "127.0.0.1", ("127.0.0.1",), ("127.0.0.1", -1), ("127.0.0.1", 65536)]
)
def test_bind_refuses_an_invalid_address(end: End, address: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        end.connector.bind(address)
    end.connector.bind((end.host, 0))


@pytest.mark.parametrize("owner", ["connector", "listener"])
def test_bind_sharing_violation_when_the_address_is_taken(pair: Pair, owner: str) -> None:
    address = (pair.passive.host, 50125)
    getattr(pair.passive, owner).bind(address)
    with nd_error(Status.SHARING_VIOLATION, match="50125") as caught:
        pair.active.connector.bind(address)
    assert isinstance(caught.value, OSError)
    pair.active.connector.bind((pair.active.host, 0))


@pytest.mark.usefixtures("no_collections")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_bind_too_many_addresses_when_every_port_is_taken(end: End) -> None:
    ports = exhaust_ports(end)
    assert ports == set(EPHEMERAL)
    with nd_error(Status.TOO_MANY_ADDRESSES, match="49152") as caught:
        end.connector.bind((end.host, 0))
    assert isinstance(caught.value, OSError)


def test_bind_address_already_associated_when_bound(end: End) -> None:
    end.connector.bind((end.host, 0))
    for address in ((end.host, 0), (end.host, 50126)):
        with nd_error(Status.ADDRESS_ALREADY_ASSOCIATED, match="bind"):
            end.connector.bind(address)


# GetReadLimits
def test_get_read_limits_success_negotiates_both_directions(pair: Pair) -> None:
    pair.listen()
    connecting = pair.active.connector.connect(pair.active.qp, pair.address, 3, 6)
    pair.offered()
    assert pair.passive.connector.get_read_limits() == (6, 3), "what the peer asks of this side"
    accepting = pair.passive.connector.accept(pair.passive.qp, 5, 2)
    connecting.result(timeout=WAIT)
    assert pair.active.connector.get_read_limits() == (2, 5)
    pair.active.connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    assert pair.active.connector.get_read_limits() == (2, 5)


def test_get_read_limits_success_clamps_silently(pair: Pair) -> None:
    info, huge = pair.active.info, 0xFFFFFFFF
    pair.limits = (huge, huge)
    pair.offer()
    offered = (info.max_outbound_read_limit, info.max_inbound_read_limit)
    inbound, outbound = pair.passive.connector.get_read_limits()
    assert inbound == min(offered[0], info.max_inbound_read_limit)
    assert outbound == min(offered[1], info.max_outbound_read_limit)
    pair.accept()
    pair.complete()
    assert pair.active.connector.get_read_limits() == (outbound, inbound)


def test_get_read_limits_success_of_nothing_asked(pair: Pair) -> None:
    pair.limits = (0, 0)
    pair.connect()
    assert pair.active.connector.get_read_limits() == (0, 0)


@pytest.mark.parametrize("state", ["A0", "A1"])
def test_get_read_limits_connection_invalid_when_not_connecting(pair: Pair, state: str) -> None:
    pair.to(state)
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.connector.get_read_limits()


# GetPrivateData
def test_get_private_data_success_is_empty_when_none_was_sent(connected: Pair) -> None:
    assert connected.active.connector.get_private_data() == b""
    assert connected.passive.connector.get_private_data() == b""


@pytest.mark.parametrize("state", ["A0", "A1", "A2"])
def test_get_private_data_connection_invalid_before_the_answer(pair: Pair, state: str) -> None:
    pair.to(state)
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.connector.get_private_data()


@pytest.fixture
def questioner(ends: Ends) -> Pair:
    """A2 with ten bytes of private data; the passive side, which has them, is here."""
    pair = ends.pair("two", remote="active")
    pair.offer(b"0123456789")
    return pair


@pytest.mark.parametrize("size", [10, 11, 100])
def test_get_private_data_into_success_returns_the_size(questioner: Pair, size: int) -> None:
    buffer = bytearray([FILL]) * size
    assert questioner.passive.connector.get_private_data_into(buffer) == 10
    assert buffer == b"0123456789" + bytes([FILL]) * (size - 10)


@pytest.mark.parametrize("size", [0, 1, 9])
def test_get_private_data_into_buffer_overflow_copies_a_part(questioner: Pair, size: int) -> None:
    buffer = bytearray([FILL]) * size
    with nd_error(Status.BUFFER_OVERFLOW, match="10") as caught:
        questioner.passive.connector.get_private_data_into(buffer)
    assert caught.value.required == 10
    assert isinstance(caught.value, BufferError)
    assert buffer == b"0123456789"[:size]


def test_get_private_data_into_buffer_overflow_when_asked_for_the_size(questioner: Pair) -> None:
    with nd_error(Status.BUFFER_OVERFLOW) as caught:
        questioner.passive.connector.get_private_data_into(None)
    assert caught.value.required == 10


def test_get_private_data_into_success_when_none_was_sent(ends: Ends) -> None:
    pair = ends.pair("one")
    pair.offer()
    assert pair.passive.connector.get_private_data_into(bytearray()) == 0
    assert pair.passive.connector.get_private_data_into(None) == 0


def test_get_private_data_into_connection_invalid_when_never_connected(end: End) -> None:
    buffer = bytearray([FILL]) * 8
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.get_private_data_into(buffer)
    assert buffer == bytes([FILL]) * 8


# Addresses
def test_get_local_address_success_names_both_ends_of_a_connection(connected: Pair) -> None:
    active, passive = connected.active.connector, connected.passive.connector
    assert active.get_local_address() == passive.get_peer_address()
    assert passive.get_local_address() == active.get_peer_address() == connected.address


@pytest.mark.parametrize("state", ["A2", "A3"])
def test_get_local_address_success_while_connecting(pair: Pair, state: str) -> None:
    pair.to(state)
    assert pair.active.connector.get_local_address()[0] == pair.active.host
    assert pair.passive.connector.get_local_address() == pair.address


@pytest.mark.parametrize("state", ["A0", "A1"])
def test_get_local_address_connection_invalid_when_not_connecting(pair: Pair, state: str) -> None:
    pair.to(state)
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.connector.get_local_address()


@pytest.mark.parametrize("state", ["A2", "A3"])
def test_get_peer_address_success_from_the_offer_on(pair: Pair, state: str) -> None:
    pair.to(state)
    assert pair.active.connector.get_peer_address() == pair.address
    assert pair.passive.connector.get_peer_address() == pair.active.connector.get_local_address()


@pytest.mark.parametrize("state", ["A0", "A1"])
def test_get_peer_address_connection_invalid_when_not_connecting(pair: Pair, state: str) -> None:
    pair.to(state)
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.connector.get_peer_address()


# NotifyDisconnect
@pytest.mark.parametrize("who", ["active", "passive"])
def test_notify_disconnect_success_when_either_side_disconnects(connected: Pair, who: str) -> None:
    notices = [end.connector.notify_disconnect() for end in (connected.active, connected.passive)]
    getattr(connected, who).connector.disconnect().result(timeout=WAIT)
    assert [final(notice) for notice in notices] == [Status.SUCCESS] * 2


def test_notify_disconnect_success_at_once_when_the_peer_is_gone(connected: Pair) -> None:
    connected.hang_up(connected.passive)
    assert final(connected.active.connector.notify_disconnect()) == Status.SUCCESS


def test_notify_disconnect_success_when_the_process_of_the_peer_dies(
    ends: Ends, kill: Callable[[], int]
) -> None:
    pair = ends.pair("two").connect()
    notice = pair.active.connector.notify_disconnect()
    kill()
    assert final(notice) == Status.SUCCESS


def test_notify_disconnect_success_several_times(connected: Pair) -> None:
    notices = [connected.active.connector.notify_disconnect() for _ in range(3)]
    connected.passive.connector.disconnect()
    assert [final(notice) for notice in notices] == [Status.SUCCESS] * 3


def test_notify_disconnect_pending_while_connected(connected: Pair) -> None:
    notice = connected.active.connector.notify_disconnect()
    connected.exchange()
    assert connected.active.still_pending(notice)


def test_notify_disconnect_canceled_when_cancelled(connected: Pair) -> None:
    notice = connected.active.connector.notify_disconnect()
    connected.active.connector.cancel_overlapped_requests()
    assert final(notice) == Status.CANCELED
    connected.exchange()
    connected.hang_up(connected.passive)


def test_notify_disconnect_connection_invalid_when_never_connected(pair: Pair) -> None:
    assert outcome(pair.active.connector.notify_disconnect) == Status.CONNECTION_INVALID


# Disconnect
@pytest.mark.parametrize("who", ["active", "passive"])
def test_disconnect_success_of_either_side_and_then_of_the_other(connected: Pair, who: str) -> None:
    first = getattr(connected, who)
    assert final(first.connector.disconnect()) == Status.SUCCESS
    assert final(connected.other(first).connector.disconnect()) == Status.SUCCESS


def test_disconnect_success_of_both_sides_at_the_same_time(connected: Pair) -> None:
    ending = [end.connector.disconnect() for end in (connected.active, connected.passive)]
    assert [final(overlapped) for overlapped in ending] == [Status.SUCCESS] * 2


def test_disconnect_success_after_a_fault(connected: Pair) -> None:
    connected.active.qp.send(connected.active.garbage_sge())
    assert statuses(connected.reap(connected.active)) == [Status.ACCESS_VIOLATION]
    assert final(connected.active.connector.disconnect()) == Status.SUCCESS
    assert final(connected.passive.connector.disconnect()) == Status.SUCCESS


def test_disconnect_pending_is_delivered_by_the_file(connected: Pair) -> None:
    connected.active.file.poll()
    ending = connected.active.connector.disconnect()
    assert ending.status in (Status.PENDING, Status.SUCCESS)
    assert final(ending) == Status.SUCCESS
    assert connected.active.file.poll() == [ending]


def test_disconnect_device_removed_when_the_adapter_is_closed(connected: Pair) -> None:
    connector = connected.active.connector
    connected.active.close()
    with nd_error(Status.DEVICE_REMOVED, match="disconnect"):
        connector.disconnect()
    assert final(connected.passive.connector.disconnect()) == Status.SUCCESS


def test_disconnect_connection_invalid_when_never_connected(pair: Pair) -> None:
    assert outcome(pair.active.connector.disconnect) == Status.CONNECTION_INVALID


def test_disconnect_connection_invalid_when_disconnected(connected: Pair) -> None:
    connected.active.connector.disconnect().result(timeout=WAIT)
    assert outcome(connected.active.connector.disconnect) == Status.CONNECTION_INVALID


# Release
def test_close_of_a_connected_connector_disconnects(connected: Pair) -> None:
    notice = connected.passive.connector.notify_disconnect()
    connected.active.qp.receive(None)
    connected.active.connector.close()
    connected.active.connector.close()
    assert statuses(connected.active.reap()) == [Status.CANCELED]
    assert final(notice) == Status.SUCCESS


def test_end_of_life_of_a_connecting_connector_abandons_the_attempt(pair: Pair) -> None:
    pair.to("A3")
    pair.connecting = None
    pair.active.file.poll()
    pair.active.drop("connector")
    assert final(pair.accepting) == Status.CONNECTION_REFUSED
