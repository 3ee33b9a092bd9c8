# SPDX-License-Identifier: Apache-2.0
"""IND2Connector: Connect, CompleteConnect, Accept and Reject."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from shmnd import Status
from spi.harness import EPHEMERAL, UNSERVED, WAIT, End, final, nd_error, outcome, statuses
from spi.pair import Pair
from spi.remote import Ends

MakePair = Callable[..., Pair]


NO_MEMORY = [None, 17, "text"]


# Connect
def test_connect_success_and_the_private_data_of_the_answer(pair: Pair) -> None:
    pair.offer(b"the question")
    assert pair.passive.connector.get_private_data() == b"the question"
    pair.accept(b"the answer")
    assert pair.active.connector.get_private_data() == b"the answer"
    pair.complete()
    assert pair.passive.connector.get_private_data() == b"the question", "readable later too"
    assert pair.active.connector.get_private_data() == b"the answer"
    pair.exchange()


def test_connect_success_without_bind(connected: Pair) -> None:
    host, port = connected.active.connector.get_local_address()
    assert host == connected.active.host
    assert port in EPHEMERAL


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.9.8.7", "::1"])
def test_connect_success_over_every_address_of_the_host(make_pair: MakePair, host: str) -> None:
    pair = make_pair(host=host).connect()
    assert pair.active.connector.get_peer_address() == pair.address
    assert pair.address[0] == host
    pair.exchange()


def test_connect_success_to_a_listener_on_every_address(make_pair: MakePair) -> None:
    pair = make_pair()
    pair.passive.listener.bind(("0.0.0.0", 0))
    pair.passive.listener.listen()
    port = pair.passive.listener.get_local_address()[1]
    pair.address = ("127.0.0.3", port)
    pair.connect()
    assert pair.active.connector.get_peer_address() == ("127.0.0.3", port)
    pair.exchange()


def test_connect_success_to_a_queue_pair_of_the_same_adapter(end: End) -> None:
    address = end.listen()
    partner, far_qp = end.new_connector(), end.new_qp(context="far")
    connecting = end.connector.connect(end.qp, address)
    end.listener.get_connection_request(partner).result(timeout=WAIT)
    accepting = partner.accept(far_qp)
    connecting.result(timeout=WAIT)
    end.connector.complete_connect().result(timeout=WAIT)
    accepting.result(timeout=WAIT)
    far_qp.receive(None, "received")
    end.qp.send(None, "sent")
    assert sorted(c.request_context for c in end.reap(2)) == ["received", "sent"]


def test_connect_success_of_many_between_the_same_ends(connected: Pair) -> None:
    active, passive = connected.active, connected.passive
    for number in range(20):
        connector, partner = active.new_connector(), passive.new_connector()
        with contextlib.closing(connector), contextlib.closing(partner):
            connecting = connector.connect(active.new_qp(), connected.address)
            passive.listener.get_connection_request(partner).result(timeout=WAIT)
            accepting = partner.accept(passive.new_qp(), 0, 0, b"%d" % number)
            connecting.result(timeout=WAIT)
            connector.complete_connect().result(timeout=WAIT)
            accepting.result(timeout=WAIT)
            assert connector.get_private_data() == b"%d" % number
            assert final(connector.disconnect()) == Status.SUCCESS
    connected.exchange()


def test_connect_pending_until_the_peer_answers(pair: Pair) -> None:
    pair.offer()
    assert pair.active.still_pending(pair.connecting)
    pair.accept()
    assert pair.connecting.status == Status.SUCCESS


@pytest.mark.parametrize("size", [1, 36, 40, "limit"])
def test_connect_success_with_private_data_of_exact_length(pair: Pair, size: int | str) -> None:
    length = pair.active.info.max_caller_data if size == "limit" else int(size)
    data = bytes(i & 0xFF for i in range(length))
    pair.offer(data)
    assert pair.passive.connector.get_private_data() == data


def test_connect_invalid_buffer_size_when_the_private_data_is_too_long(pair: Pair) -> None:
    pair.listen()
    limit = pair.active.info.max_caller_data
    with nd_error(Status.INVALID_BUFFER_SIZE, match=str(limit + 1)) as caught:
        pair.request(b"x" * (limit + 1))
    assert str(limit) in str(caught.value)
    assert isinstance(caught.value, ValueError)
    pair.offer(b"x" * limit)
    assert pair.passive.connector.get_private_data() == b"x" * limit, "the first was never sent"
    pair.accept()
    pair.complete()
    pair.exchange()


@pytest.mark.parametrize("data", NO_MEMORY, ids=repr)
def test_connect_access_violation_when_the_private_data_is_not_memory(
    pair: Pair, data: Any
) -> None:
    pair.listen()
    with nd_error(Status.ACCESS_VIOLATION, match="private data"):
        pair.request(data)
    pair.connect().exchange()


def test_connect_canceled_when_cancelled(pair: Pair) -> None:
    pair.offer()
    pair.active.connector.cancel_overlapped_requests()
    assert pair.connecting.done()
    assert final(pair.connecting) == Status.CANCELED


def test_connect_canceled_when_the_queue_pair_is_closed(pair: Pair) -> None:
    pair.offer()
    pair.active.qp.close()
    assert final(pair.connecting) == Status.CANCELED


def test_connect_canceled_when_the_queue_pair_had_its_connection(connected: Pair) -> None:
    connected.hang_up(connected.active)
    connector = connected.active.new_connector()
    status = outcome(connector.connect, connected.active.qp, connected.address)
    assert status == Status.CANCELED
    connector.bind((connected.active.host, 0))  # it is as new


def test_connect_canceled_when_the_connector_is_closed(pair: Pair) -> None:
    pair.offer()
    pair.active.connector.close()
    assert final(pair.connecting) == Status.CANCELED


def test_connect_device_removed_when_the_adapter_is_closed(end: End) -> None:
    connector, qp = end.connector, end.qp
    end.close()
    with nd_error(Status.DEVICE_REMOVED, match="connect"):
        connector.connect(qp, (end.host, 50000))


def test_connect_connection_active_when_the_queue_pair_is_connected(connected: Pair) -> None:
    connector = connected.active.new_connector()
    status = outcome(connector.connect, connected.active.qp, connected.address)
    assert status == Status.CONNECTION_ACTIVE
    connected.exchange()


def test_connect_connection_active_when_the_queue_pair_is_connecting_elsewhere(
    pair: Pair,
) -> None:
    pair.offer()
    connector = pair.active.new_connector()
    assert outcome(connector.connect, pair.active.qp, pair.address) == Status.CONNECTION_ACTIVE
    pair.accept()
    pair.complete()
    pair.exchange()


def test_connect_host_unreachable_when_the_address_is_not_served(pair: Pair) -> None:
    for host in (UNSERVED, "2001:db8::1", "8.8.8.8"):
        with nd_error(Status.HOST_UNREACHABLE, match=host) as caught:
            pair.active.connector.connect(pair.active.qp, (host, 50000)).result(timeout=WAIT)
        assert isinstance(caught.value, OSError)
    pair.connect()


def test_connect_network_unreachable_when_bound_to_the_other_family(pair: Pair) -> None:
    pair.listen()
    connector = pair.active.new_connector()
    connector.bind(("::1", 0))
    with nd_error(Status.NETWORK_UNREACHABLE, match="::1.*127.0.0.1") as caught:
        connector.connect(pair.active.qp, pair.address).result(timeout=WAIT)
    assert isinstance(caught.value, OSError)
    pair.connect()


def test_connect_connection_refused_without_a_listener(pair: Pair) -> None:
    for address in ((pair.passive.host, 50000), ("127.0.0.9", 50000), ("::1", 50000)):
        with nd_error(Status.CONNECTION_REFUSED, match="50000") as caught:
            pair.active.connector.connect(pair.active.qp, address).result(timeout=WAIT)
        assert isinstance(caught.value, ConnectionRefusedError)
    pair.connect()


def test_connect_connection_refused_when_the_listener_is_bound_but_not_listening(
    pair: Pair,
) -> None:
    pair.passive.listener.bind((pair.passive.host, 50127))
    assert refused(pair, (pair.passive.host, 50127))


def refused(pair: Pair, address: tuple[str, int]) -> bool:
    status = outcome(pair.active.connector.connect, pair.active.qp, address)
    return bool(status == Status.CONNECTION_REFUSED)


def test_connect_connection_refused_when_the_backlog_is_full(pair: Pair) -> None:
    pair.listen(backlog=2)
    waiting = []
    for _ in range(2):
        connector = pair.active.new_connector()
        waiting.append(connector.connect(pair.active.new_qp(), pair.address))
    assert refused(pair, pair.address)
    assert [pair.active.still_pending(overlapped) for overlapped in waiting] == [True, True]
    pair.offered()
    pair.passive.connector.reject()
    assert final(waiting[0]) == Status.CONNECTION_REFUSED, "the oldest is served first"
    assert pair.active.still_pending(pair.request()), "there is room again"


def test_connect_connection_refused_when_the_peer_rejects(pair: Pair) -> None:
    pair.offer()
    pair.passive.connector.reject(b"not now")
    assert final(pair.connecting) == Status.CONNECTION_REFUSED
    assert pair.active.connector.get_private_data() == b"not now"
    pair.passive.drop("connector")
    pair.connect()
    pair.exchange()


def test_connect_connection_refused_when_the_peer_closes_its_connector(pair: Pair) -> None:
    pair.offer()
    pair.passive.connector.close()
    assert final(pair.connecting) == Status.CONNECTION_REFUSED


def test_connect_connection_refused_when_the_listener_is_closed(pair: Pair) -> None:
    pair.listen()
    pair.request()
    pair.passive.listener.close()
    assert final(pair.connecting) == Status.CONNECTION_REFUSED
    assert refused(pair, pair.address)


@pytest.mark.parametrize("when", ["in the backlog", "offered"])
def test_connect_connection_refused_when_the_process_of_the_listener_dies(
    ends: Ends, kill: Callable[[], int], when: str
) -> None:
    pair = ends.pair("two")
    pair.listen()
    pair.request()
    if when == "offered":
        pair.offered()
    kill()
    assert final(pair.connecting) == Status.CONNECTION_REFUSED
    pair.active.connector.bind((pair.active.host, pair.address[1]))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_connect_bad_network_name_when_the_address_is_every_address(pair: Pair, host: str) -> None:
    status = outcome(pair.active.connector.connect, pair.active.qp, (host, 50000))
    assert status == Status.BAD_NETWORK_NAME
    assert outcome(pair.active.connector.connect, pair.active.qp, (host, 50000)) == status
    pair.connect()


@pytest.mark.parametrize("qp", [None, 17, object()], ids=["none", "number", "object"])
def test_connect_refuses_another_object(end: End, qp: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        end.connector.connect(qp, (end.host, 50000))


def test_connect_refuses_a_queue_pair_of_another_adapter(end: End, ends: Ends) -> None:
    with pytest.raises(ValueError, match="connect"):
        end.connector.connect(ends.here().qp, (end.host, 50000))


# CompleteConnect
def test_complete_connect_success_ends_the_accept_of_the_peer(pair: Pair) -> None:
    pair.to("A3")
    assert pair.passive.still_pending(pair.accepting)
    assert final(pair.active.connector.complete_connect()) == Status.SUCCESS
    assert final(pair.accepting) == Status.SUCCESS
    pair.exchange()


def test_complete_connect_pending_is_delivered_by_the_file(pair: Pair) -> None:
    pair.to("A3")
    pair.active.file.poll()
    completing = pair.active.connector.complete_connect()
    assert completing.status in (Status.PENDING, Status.SUCCESS)
    assert final(completing) == Status.SUCCESS
    assert pair.active.file.poll() == [completing]


def test_complete_connect_connection_invalid_when_not_connecting(pair: Pair) -> None:
    assert outcome(pair.active.connector.complete_connect) == Status.CONNECTION_INVALID


def test_complete_connect_connection_invalid_when_the_peer_gave_up(pair: Pair) -> None:
    pair.to("A3")
    pair.passive.connector.close()
    assert outcome(pair.active.connector.complete_connect) == Status.CONNECTION_INVALID
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.qp.send(None)


def test_complete_connect_connection_invalid_when_the_process_of_the_peer_died(
    ends: Ends, kill: Callable[[], int]
) -> None:
    pair = ends.pair("two").to("A3")
    kill()
    status = outcome(pair.active.connector.complete_connect)
    if status == Status.SUCCESS:  # a death is heard of within milliseconds, not at once
        assert final(pair.active.connector.notify_disconnect()) == Status.SUCCESS
    else:
        assert status == Status.CONNECTION_INVALID


def test_complete_connect_device_removed_when_the_adapter_is_closed(pair: Pair) -> None:
    pair.to("A3")
    connector = pair.active.connector
    pair.active.close()
    with nd_error(Status.DEVICE_REMOVED, match="complete_connect"):
        connector.complete_connect()
    assert final(pair.accepting) == Status.CONNECTION_REFUSED


# Accept
def test_accept_success_lets_the_passive_side_send_before_it_is_delivered(pair: Pair) -> None:
    pair.to("A3")
    pair.passive.qp.receive(None, "first")
    pair.active.qp.receive(None, "second")
    pair.active.connector.complete_connect().result(timeout=WAIT)
    pair.active.qp.send(None)
    assert statuses(pair.passive.reap()) == [Status.SUCCESS]
    pair.passive.qp.send(None)
    assert statuses(pair.reap(pair.passive)) == [Status.SUCCESS]
    assert len(pair.reap(pair.active, 2)) == 2
    assert final(pair.accepting) == Status.SUCCESS


def test_accept_success_with_private_data_up_to_the_limit(pair: Pair) -> None:
    limit = pair.passive.info.max_callee_data
    pair.offer()
    pair.accept(b"y" * limit)
    assert pair.active.connector.get_private_data() == b"y" * limit


def test_accept_pending_until_the_active_side_completes(pair: Pair) -> None:
    pair.to("A3")
    assert pair.passive.still_pending(pair.accepting)
    pair.complete()
    assert pair.accepting.status == Status.SUCCESS


@pytest.mark.slow
def test_accept_pending_however_late_the_active_side_is(pair: Pair) -> None:
    pair.to("A3")
    with pytest.raises(TimeoutError):
        pair.accepting.result(timeout=5)
    pair.complete()
    pair.exchange()


def test_accept_success_when_the_active_side_has_completed_and_ended_it(ends: Ends) -> None:
    pair = ends.pair("two", remote="active").to("A3")
    pair.active.connector.complete_connect().result(timeout=WAIT)
    pair.active.connector.disconnect().result(timeout=WAIT)
    assert not pair.passive.qp._peer_gave_up, "it reads so before the next poll"
    assert final(pair.accepting) == Status.SUCCESS
    assert final(pair.passive.connector.notify_disconnect()) == Status.SUCCESS


def test_accept_canceled_when_cancelled(pair: Pair) -> None:
    pair.to("A3")
    pair.passive.connector.cancel_overlapped_requests()
    assert pair.accepting.done()
    assert final(pair.accepting) == Status.CANCELED
    assert outcome(pair.active.connector.complete_connect) == Status.CONNECTION_INVALID


@pytest.mark.parametrize("what", ["qp", "connector"])
def test_accept_canceled_when_its_side_is_closed(pair: Pair, what: str) -> None:
    pair.to("A3")
    getattr(pair.passive, what).close()
    assert final(pair.accepting) == Status.CANCELED
    assert outcome(pair.active.connector.complete_connect) == Status.CONNECTION_INVALID


def test_accept_device_removed_when_the_adapter_is_closed(pair: Pair) -> None:
    pair.to("A2")
    connector, qp = pair.passive.connector, pair.passive.qp
    pair.passive.close()
    with nd_error(Status.DEVICE_REMOVED, match="accept"):
        connector.accept(qp)
    assert final(pair.connecting) == Status.CONNECTION_REFUSED


def test_accept_connection_active_when_the_queue_pair_is_connected(connected: Pair) -> None:
    passive = connected.passive
    connector, partner = connected.active.new_connector(), passive.new_connector()
    connecting = connector.connect(connected.active.new_qp(), connected.address)
    passive.listener.get_connection_request(partner).result(timeout=WAIT)
    assert outcome(partner.accept, passive.qp) == Status.CONNECTION_ACTIVE
    accepting = partner.accept(passive.new_qp())
    connecting.result(timeout=WAIT)
    assert final(connector.complete_connect()) == Status.SUCCESS, "the offer was still valid"
    assert final(accepting) == Status.SUCCESS
    connected.exchange()


@pytest.mark.parametrize("how", ["cancel", "close the connector", "close the queue pair"])
def test_accept_connection_aborted_when_the_active_side_gave_up_before(
    pair: Pair, how: str
) -> None:
    pair.to("A2")
    withdraw(pair.active, how)
    assert final(pair.connecting) == Status.CANCELED
    with nd_error(Status.CONNECTION_ABORTED, match="accept") as caught:
        pair.passive.connector.accept(pair.passive.qp).result(timeout=WAIT)
    assert isinstance(caught.value, ConnectionAbortedError)


def withdraw(end: End, how: str) -> None:
    if how == "cancel":
        end.connector.cancel_overlapped_requests()
    elif how == "close the connector":
        end.connector.close()
    else:
        end.qp.close()


def test_accept_connection_aborted_when_the_process_of_the_active_side_died_before(
    ends: Ends, kill: Callable[[], int]
) -> None:
    pair = ends.pair("two", remote="active").to("A2")
    kill()
    status = outcome(pair.passive.connector.accept, pair.passive.qp)
    # The broker may hear of the death before or after the Accept.
    assert status in (Status.CONNECTION_ABORTED, Status.CONNECTION_REFUSED)


@pytest.mark.parametrize("how", ["reject", "close the connector", "close the queue pair"])
def test_accept_connection_refused_when_the_active_side_withdraws_after(
    pair: Pair, how: str
) -> None:
    pair.to("A3")
    pair.passive.qp.receive(None, "kept")
    if how == "reject":
        pair.active.connector.reject()
    else:
        withdraw(pair.active, how)
    assert final(pair.accepting) == Status.CONNECTION_REFUSED
    with nd_error(Status.CONNECTION_INVALID):
        pair.passive.qp.send(None)
    assert pair.passive.leftover() == []
    pair.passive.qp.flush()
    assert [c.request_context for c in pair.passive.reap()] == ["kept"]


def test_accept_connection_refused_when_the_process_of_the_active_side_dies(
    ends: Ends, kill: Callable[[], int]
) -> None:
    pair = ends.pair("two", remote="active").to("A3")
    kill()
    assert final(pair.accepting) == Status.CONNECTION_REFUSED


def test_accept_invalid_buffer_size_when_the_private_data_is_too_long(pair: Pair) -> None:
    pair.to("A2")
    limit = pair.passive.info.max_callee_data
    with nd_error(Status.INVALID_BUFFER_SIZE, match=str(limit + 1)):
        pair.passive.connector.accept(pair.passive.qp, 1, 1, b"x" * (limit + 1))
    pair.accept(b"x" * limit)
    pair.complete()
    pair.exchange()


@pytest.mark.parametrize("data", NO_MEMORY, ids=repr)
def test_accept_access_violation_when_the_private_data_is_not_memory(pair: Pair, data: Any) -> None:
    pair.to("A2")
    with nd_error(Status.ACCESS_VIOLATION, match="private data"):
        pair.passive.connector.accept(pair.passive.qp, 1, 1, data)
    pair.accept()
    pair.complete()
    pair.exchange()


def test_accept_refuses_a_connector_without_an_offer(end: End) -> None:
    with pytest.raises(ConnectionError):
        end.connector.accept(end.qp)


# Reject
@pytest.mark.parametrize("data", [b"", b"sorry", "limit"])
def test_reject_success_of_the_passive_side(pair: Pair, data: bytes | str) -> None:
    pair.to("A2")
    limit = pair.passive.info.max_callee_data
    reason = b"z" * limit if isinstance(data, str) else data
    assert pair.passive.connector.reject(reason) is None
    assert final(pair.connecting) == Status.CONNECTION_REFUSED
    assert pair.active.connector.get_private_data() == reason


def test_reject_success_of_the_active_side_after_the_answer(pair: Pair) -> None:
    pair.to("A3")
    assert pair.active.connector.reject() is None
    assert final(pair.accepting) == Status.CONNECTION_REFUSED


def test_reject_device_removed_when_the_adapter_is_closed(pair: Pair) -> None:
    pair.to("A2")
    connector = pair.passive.connector
    pair.passive.close()
    with nd_error(Status.DEVICE_REMOVED, match="reject"):
        connector.reject()


@pytest.mark.parametrize("how", ["cancel", "close the connector", "close the queue pair"])
def test_reject_connection_aborted_when_the_active_side_gave_up(pair: Pair, how: str) -> None:
    pair.to("A2")
    withdraw(pair.active, how)
    assert final(pair.connecting) == Status.CANCELED
    with nd_error(Status.CONNECTION_ABORTED, match="reject"):
        pair.passive.connector.reject()


def test_reject_invalid_buffer_size_when_the_private_data_is_too_long(pair: Pair) -> None:
    pair.to("A2")
    limit = pair.passive.info.max_callee_data
    with nd_error(Status.INVALID_BUFFER_SIZE, match=str(limit)):
        pair.passive.connector.reject(b"x" * (limit + 1))
    pair.accept()
    pair.complete()
    pair.exchange()


@pytest.mark.parametrize("data", NO_MEMORY, ids=repr)
def test_reject_access_violation_when_the_private_data_is_not_memory(pair: Pair, data: Any) -> None:
    pair.to("A2")
    with nd_error(Status.ACCESS_VIOLATION, match="private data"):
        pair.passive.connector.reject(data)
    pair.accept()
    pair.complete()
    pair.exchange()
