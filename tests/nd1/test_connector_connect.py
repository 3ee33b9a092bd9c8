# SPDX-License-Identifier: Apache-2.0
"""INDConnector: Connect, CompleteConnect, Accept and Reject."""

from collections.abc import Callable
from typing import Any

import pytest

import shmnd.nd1 as nd
from nd1.ends import End, Pair
from shmnd import Status
from spi.harness import UNSERVED, WAIT, nd_error, outcome


# -- Connect --
def test_connect_success_carries_data_both_ways(pair: Pair) -> None:
    pair.offer(b"what do you say")
    assert pair.passive.connector.get_connection_data() == (8, 8, b"what do you say")
    pair.accept(b"yes")
    assert pair.active.connector.get_connection_data() == (8, 8, b"yes")


def test_connect_success_from_a_port_of_choice(pair: Pair) -> None:
    with pair.active.adapter.listen() as chosen:
        port = chosen.assigned_port
    waiting = pair.passive.listen.get_connection_request(pair.passive.connector)
    active = pair.active
    active.connector.connect(active.endpoint, pair.address(), 6, port)
    waiting.result(WAIT)
    assert pair.passive.connector.get_peer_address() == ("127.0.0.1", port)


def test_connect_pending_until_the_peer_decides(pair: Pair) -> None:
    pair.offer()
    assert pair.connecting.status is Status.PENDING


def test_connect_invalid_parameter_1_with_another_connectors_endpoint(pair: Pair) -> None:
    other = pair.active.adapter.create_connector()
    foreign = other.create_endpoint(pair.active.cq, pair.active.cq, 1, 1, 1, 1)
    pair.active.kept += [other, foreign]
    for endpoint in (foreign, pair.passive.endpoint, None):
        with nd_error(Status.INVALID_PARAMETER_1, match="connect"):
            pair.active.connector.connect(endpoint, pair.address())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "address",
    [None, "127.0.0.1", ("no address", 5), ("0.0.0.0", 5), ("::1", 5), ("127.0.0.1", 70000)],
)
def test_connect_invalid_address_when_it_is_none(end: End, address: Any) -> None:
    with nd_error(Status.INVALID_ADDRESS, match="connect"):
        end.connector.connect(end.endpoint, address)


@pytest.mark.parametrize("protocol", [-1, 256, "tcp"])
def test_connect_invalid_parameter_4_when_the_protocol_is_none(end: End, protocol: Any) -> None:
    with nd_error(Status.INVALID_PARAMETER_4, match="255"):
        end.connector.connect(end.endpoint, ("127.0.0.1", 5), protocol)


def test_connect_buffer_overflow_with_too_much_data(end: End) -> None:
    most = end.adapter.query().max_caller_data
    with nd_error(Status.BUFFER_OVERFLOW, match=str(most)):
        end.connector.connect(end.endpoint, ("127.0.0.1", 5), private_data=bytes(most + 1))


def test_connect_access_violation_when_the_data_is_not_memory(pair: Pair) -> None:
    for data in (None, 17, "text"):
        with nd_error(Status.ACCESS_VIOLATION, match="private data"):
            pair.active.connector.connect(
                pair.active.endpoint,
                pair.address(),
                private_data=data,  # type: ignore[arg-type]
            )
    pair.connect()


def test_connect_connection_active_when_it_is_under_way(pair: Pair) -> None:
    pair.offer()
    with nd_error(Status.CONNECTION_ACTIVE):
        pair.active.connector.connect(pair.active.endpoint, pair.address())
    with nd_error(Status.CONNECTION_ACTIVE):
        pair.active.connector.connect(pair.active.endpoint, pair.address(), 6, 50000)


def test_connect_connection_active_while_it_waits_for_a_request(pair: Pair) -> None:
    """A17."""
    passive = pair.passive
    passive.listen.get_connection_request(passive.connector)
    with nd_error(Status.CONNECTION_ACTIVE):
        passive.connector.connect(passive.endpoint, pair.address())


def test_connect_address_already_exists_when_the_local_port_is_taken(pair: Pair) -> None:
    active = pair.active
    with active.adapter.listen() as taken, nd_error(Status.ADDRESS_ALREADY_EXISTS):
        active.connector.connect(active.endpoint, pair.address(), 6, taken.assigned_port)
    pair.connect()  # nothing of it stays


def test_connect_device_removed_when_the_adapter_is_closed(pair: Pair) -> None:
    connector, endpoint, address = pair.active.connector, pair.active.endpoint, pair.address()
    pair.active.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        connector.connect(endpoint, address)


def test_connect_connection_refused_by_a_reject_with_its_data(pair: Pair) -> None:
    pair.offer()
    pair.passive.connector.reject(b"no")
    assert outcome(lambda: pair.connecting) is Status.CONNECTION_REFUSED
    assert pair.active.connector.get_connection_data() == (0, 0, b"no")


def test_connect_connection_refused_without_a_listener(end: End) -> None:
    receive = nd.Result()
    end.endpoint.receive(receive, None)
    with end.adapter.listen() as gone:
        port = gone.assigned_port
    for _ in range(2):  # the same connector and endpoint serve again
        refused = outcome(end.connector.connect, end.endpoint, ("127.0.0.1", port))
        assert refused is Status.CONNECTION_REFUSED
    assert end.cq.get_results() == [], "the Receive stays"


def test_connect_connection_refused_under_another_protocol(pair: Pair) -> None:
    active = pair.active
    refused = outcome(active.connector.connect, active.endpoint, pair.address(), 17)
    assert refused is Status.CONNECTION_REFUSED


def test_connect_host_unreachable_when_the_address_is_not_served(end: End) -> None:
    assert outcome(end.connector.connect, end.endpoint, (UNSERVED, 5)) is Status.HOST_UNREACHABLE


def test_connect_canceled_by_a_cancel(pair: Pair) -> None:
    pair.offer()
    pair.active.connector.cancel_overlapped_requests()
    assert pair.connecting.status is Status.CANCELED


# -- CompleteConnect --
def test_complete_connect_success_connects_both(connected: Pair) -> None:
    sent, received = nd.Result(), nd.Result()
    connected.passive.endpoint.receive(received, None)
    connected.active.endpoint.send(sent, None)
    assert connected.passive.reap() == [received]
    assert connected.active.reap() == [sent]


def test_complete_connect_connection_invalid_before_and_after_its_time(pair: Pair) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.connector.complete_connect()
    pair.offer()
    with nd_error(Status.CONNECTION_INVALID):
        pair.active.connector.complete_connect()
    pair.accept()
    pair.passive.connector.close()
    assert outcome(pair.active.connector.complete_connect) is Status.CONNECTION_INVALID


def test_complete_connect_device_removed_when_the_adapter_is_closed(end: End) -> None:
    connector = end.connector
    end.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        connector.complete_connect()


# -- Accept --
def test_accept_success_with_an_endpoint_made_for_the_request(pair: Pair) -> None:
    """Read limits travel in the endpoints, and the lower ones hold."""
    pair.offer()
    passive = pair.passive
    inbound, outbound, _ = passive.connector.get_connection_data()
    endpoint = passive.connector.create_endpoint(passive.cq, passive.cq, 4, 4, 1, 1, inbound, 2)
    passive.kept.append(endpoint)
    assert (inbound, outbound) == (8, 8)
    accepting = passive.connector.accept(endpoint)
    pair.connecting.result(WAIT)
    assert pair.active.connector.get_connection_data()[:2] == (2, 8)
    pair.active.connector.complete_connect().result(WAIT)
    accepting.result(WAIT)


def test_accept_pending_until_the_active_side_completes(pair: Pair) -> None:
    pair.offer()
    pair.accept()
    assert pair.accepting.status is Status.PENDING


def test_accept_canceled_when_the_endpoint_is_released(pair: Pair) -> None:
    pair.offer()
    pair.accept()
    pair.passive.endpoint.close()
    assert outcome(lambda: pair.accepting) is Status.CANCELED


def test_accept_device_removed_when_the_adapter_is_closed(pair: Pair) -> None:
    pair.offer()
    connector, endpoint = pair.passive.connector, pair.passive.endpoint
    pair.passive.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        connector.accept(endpoint)


def test_accept_connection_active_when_the_connection_is_made(connected: Pair) -> None:
    with nd_error(Status.CONNECTION_ACTIVE):
        connected.passive.connector.accept(connected.passive.endpoint)


def test_accept_connection_aborted_when_the_active_side_gave_up(pair: Pair) -> None:
    pair.offer()
    pair.active.connector.close()
    pair.passive.adapter.get_overlapped_result(pair.connecting)
    assert outcome(pair.passive.connector.accept, pair.passive.endpoint) is (
        Status.CONNECTION_ABORTED
    )


def test_accept_connection_aborted_when_the_active_side_withdraws_later(pair: Pair) -> None:
    pair.offer()
    pair.accept()
    pair.active.connector.reject()
    assert outcome(lambda: pair.accepting) is Status.CONNECTION_ABORTED


def test_accept_buffer_overflow_with_too_much_data(pair: Pair) -> None:
    pair.offer()
    most = pair.passive.adapter.query().max_callee_data
    with nd_error(Status.BUFFER_OVERFLOW, match=str(most)):
        pair.passive.connector.accept(pair.passive.endpoint, bytes(most + 1))
    pair.accept(bytes(most))


def test_accept_access_violation_when_the_data_is_not_memory(pair: Pair) -> None:
    pair.offer()
    with nd_error(Status.ACCESS_VIOLATION, match="private data"):
        pair.passive.connector.accept(pair.passive.endpoint, "text")  # type: ignore[arg-type]
    pair.accept()


def test_accept_invalid_parameter_1_with_another_connectors_endpoint(pair: Pair) -> None:
    pair.offer()
    for endpoint in (pair.active.endpoint, None):
        with nd_error(Status.INVALID_PARAMETER_1):
            pair.passive.connector.accept(endpoint)  # type: ignore[arg-type]


def test_accept_connection_invalid_without_a_request(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.accept(end.endpoint)


# -- Reject --
def test_reject_success_on_either_side(make_pair: Callable[..., Pair]) -> None:
    first, second = make_pair(), make_pair()
    first.offer()
    first.passive.connector.reject(b"")
    assert outcome(lambda: first.connecting) is Status.CONNECTION_REFUSED
    second.offer()
    second.accept()
    second.active.connector.reject()
    assert outcome(lambda: second.accepting) is Status.CONNECTION_ABORTED


def test_reject_buffer_overflow_with_too_much_data(pair: Pair) -> None:
    pair.offer()
    most = pair.passive.adapter.query().max_callee_data
    with nd_error(Status.BUFFER_OVERFLOW):
        pair.passive.connector.reject(bytes(most + 1))
    pair.passive.connector.reject(bytes(most))


def test_reject_access_violation_when_the_data_is_not_memory(pair: Pair) -> None:
    pair.offer()
    with nd_error(Status.ACCESS_VIOLATION, match="private data"):
        pair.passive.connector.reject("text")  # type: ignore[arg-type]
    pair.passive.connector.reject()


def test_reject_connection_aborted_when_the_active_side_gave_up(pair: Pair) -> None:
    pair.offer()
    pair.active.connector.close()
    assert outcome(pair.passive.connector.reject) is Status.CONNECTION_ABORTED


def test_reject_connection_invalid_when_there_is_nothing_to_reject(end: End) -> None:
    with nd_error(Status.CONNECTION_INVALID):
        end.connector.reject()


def test_reject_device_removed_when_the_adapter_is_closed(end: End) -> None:
    connector = end.connector
    end.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        connector.reject()
