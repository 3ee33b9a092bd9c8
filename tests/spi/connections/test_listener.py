# SPDX-License-Identifier: Apache-2.0
"""IND2Listener: addresses and ports, the backlog, requests and the connectors that get them."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from shmnd import NdError, Status
from spi.harness import EPHEMERAL, UNSERVED, WAIT, End, final, nd_error, outcome
from spi.pair import Pair
from spi.remote import Ends


def knock(pair: Pair, data: bytes = b"") -> Any:
    """One more connection request of the active end, with a connector and queue pair of its own."""
    connector = pair.active.new_connector()
    return connector.connect(pair.active.new_qp(), pair.address, 0, 0, data)


# Bind


def test_bind_success_to_a_port_of_the_providers_choice(end: End) -> None:
    host, port = end.listen()
    assert host == end.host
    assert port in EPHEMERAL


@pytest.mark.parametrize("port", [1, 54321, 65535])
def test_bind_success_to_a_port_of_the_callers_choice(end: End, port: int) -> None:
    assert end.listen(port=port) == (end.host, port)


def test_bind_success_skips_ports_that_are_taken(end: End) -> None:
    taken = {50200 + number for number in range(20)}
    for port in taken:
        end.new_connector().bind((end.host, port))
    for _ in range(50):
        with end.adapter.create_listener() as listener:
            listener.bind((end.host, 0))
            listener.listen()
            assert listener.get_local_address()[1] not in taken


def test_bind_success_at_once_on_the_port_of_a_listener_that_was_closed(pair: Pair) -> None:
    pair.connect()
    pair.passive.listener.close()
    again = pair.passive.adapter.create_listener()
    again.bind(pair.address)
    again.listen()
    waiting = knock(pair)
    again.get_connection_request(pair.passive.new_connector()).result(timeout=WAIT)
    assert pair.active.still_pending(waiting)
    pair.exchange()


@pytest.mark.parametrize("owner", ["listener", "connector"])
def test_bind_sharing_violation_when_the_address_is_taken(pair: Pair, owner: str) -> None:
    address = (pair.passive.host, 50300)
    getattr(pair.passive, owner).bind(address)
    with nd_error(Status.SHARING_VIOLATION, match="50300"):
        pair.active.listener.bind(address)
    pair.active.listener.bind((pair.active.host, 50301))


@pytest.mark.parametrize("taken", ["0.0.0.0", "127.0.0.1"])
def test_bind_sharing_violation_when_every_address_and_one_meet(pair: Pair, taken: str) -> None:
    pair.passive.listener.bind((taken, 50302))
    other = "127.0.0.1" if taken == "0.0.0.0" else "0.0.0.0"
    with nd_error(Status.SHARING_VIOLATION):
        pair.active.listener.bind((other, 50302))


@pytest.mark.usefixtures("no_collections")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_bind_too_many_addresses_when_every_port_is_taken(end: End) -> None:
    for _ in EPHEMERAL:
        end.kept.append(end.adapter.create_listener())
        end.kept[-1].bind((end.host, 0))
    with nd_error(Status.TOO_MANY_ADDRESSES, match="49152"):
        end.listener.bind((end.host, 0))


def test_bind_address_already_associated_when_bound(end: End) -> None:
    end.listener.bind((end.host, 0))
    for address in ((end.host, 0), (end.host, 50303)):
        with nd_error(Status.ADDRESS_ALREADY_ASSOCIATED, match="bind"):
            end.listener.bind(address)
    end.listener.listen()
    with nd_error(Status.ADDRESS_ALREADY_ASSOCIATED):
        end.listener.bind(end.listener.get_local_address())


@pytest.mark.parametrize("host", [UNSERVED, "2001:db8::1", "8.8.8.8"])
def test_bind_invalid_address_when_it_is_none_of_the_adapter(end: End, host: str) -> None:
    with nd_error(Status.INVALID_ADDRESS, match=host):
        end.listener.bind((host, 0))
    end.listen()


# Listen


@pytest.mark.parametrize("backlog", [0, 1, 0xFFFFFFFF])
def test_listen_success_with_any_backlog(pair: Pair, backlog: int) -> None:
    pair.listen(backlog)
    pair.connect()
    pair.exchange()


def test_listen_success_with_backlog_zero_has_no_limit(pair: Pair) -> None:
    pair.listen()
    waiting = [knock(pair, b"%d" % number) for number in range(40)]
    assert all(pair.active.still_pending(overlapped) for overlapped in waiting)
    for number in range(40):
        with contextlib.closing(pair.passive.new_connector()) as connector:
            pair.passive.listener.get_connection_request(connector).result(timeout=WAIT)
            assert connector.get_private_data() == b"%d" % number, "oldest first"


def test_listen_invalid_device_state_when_not_bound(end: End) -> None:
    with nd_error(Status.INVALID_DEVICE_STATE, match="listen"):
        end.listener.listen()
    end.listen()


def test_listen_invalid_device_state_when_listening(end: End) -> None:
    end.listen()
    with nd_error(Status.INVALID_DEVICE_STATE, match="listen"):
        end.listener.listen()


# GetLocalAddress


def test_get_local_address_success_has_the_chosen_port(end: End) -> None:
    end.listener.bind(("127.0.0.2", 0))
    end.listener.listen()
    host, port = end.listener.get_local_address()
    assert host == "127.0.0.2"
    assert port in EPHEMERAL


def test_get_local_address_invalid_device_state_when_not_listening(end: End) -> None:
    for _ in range(2):
        with nd_error(Status.INVALID_DEVICE_STATE):
            end.listener.get_local_address()
        if _ == 0:
            end.listener.bind((end.host, 0))


# GetConnectionRequest


def test_get_connection_request_success_for_a_request_in_the_backlog(pair: Pair) -> None:
    pair.listen()
    knock(pair, b"early")
    pair.offered()
    assert pair.passive.connector.get_private_data() == b"early"


def test_get_connection_request_success_one_for_each_request_oldest_first(pair: Pair) -> None:
    pair.listen()
    connectors = [pair.passive.new_connector() for _ in range(3)]
    waiting = [pair.passive.listener.get_connection_request(c) for c in connectors]
    assert pair.passive.file.poll() == []
    for number, connector in enumerate(connectors):
        knock(pair, b"%d" % number)
        assert final(waiting[number]) == Status.SUCCESS
        assert pair.passive.file.poll() == [waiting[number]]
        assert connector.get_private_data() == b"%d" % number


def test_get_connection_request_pending_until_a_request_arrives(pair: Pair) -> None:
    pair.listen()
    waiting = pair.passive.listener.get_connection_request(pair.passive.connector)
    assert pair.passive.still_pending(waiting)
    pair.request()
    assert final(waiting) == Status.SUCCESS


def test_get_connection_request_canceled_when_the_listener_is_closed(pair: Pair) -> None:
    pair.listen()
    connectors = [pair.passive.new_connector() for _ in range(2)]
    waiting = [pair.passive.listener.get_connection_request(c) for c in connectors]
    pair.passive.listener.close()
    assert [final(overlapped) for overlapped in waiting] == [Status.CANCELED] * 2


@pytest.mark.parametrize("released", ["listener", "connector"])
def test_get_connection_request_canceled_refuses_a_request_that_is_on_its_way(
    ends: Ends, released: str
) -> None:
    """The program of the passive side makes no call after the close, and the peer learns of it.

    In one process the call that waits for the peer takes the request for the passive side, too.
    """
    pair = ends.pair("two")
    pair.listen()
    pair.passive.listener.get_connection_request(pair.passive.connector)
    asking = pair.active.new_connector()
    connecting = asking.connect(pair.active.new_qp(), pair.address)
    asking.get_local_address()  # the broker has passed the request on
    getattr(pair.passive, released).close()
    assert final(connecting) == Status.CONNECTION_REFUSED


def test_get_connection_request_canceled_when_cancelled_and_the_connector_is_free_again(
    pair: Pair,
) -> None:
    pair.listen()
    waiting = pair.passive.listener.get_connection_request(pair.passive.connector)
    pair.passive.listener.cancel_overlapped_requests()
    assert waiting.done()
    assert final(waiting) == Status.CANCELED
    pair.connect()
    pair.exchange()


def test_get_connection_request_canceled_loses_no_request(pair: Pair) -> None:
    """A request that meets a cancelled call waits in the backlog, or was handed out: never both."""
    pair.listen()
    for number in range(20):
        connector = pair.passive.new_connector()
        waiting = pair.passive.listener.get_connection_request(connector)
        connecting = knock(pair, b"%d" % number)
        pair.passive.listener.cancel_overlapped_requests()
        if final(waiting) == Status.CANCELED:
            pair.passive.listener.get_connection_request(connector).result(timeout=WAIT)
        assert connector.get_private_data() == b"%d" % number
        connector.reject()
        assert final(connecting) == Status.CONNECTION_REFUSED


def test_get_connection_request_device_removed_when_the_adapter_is_closed(end: End) -> None:
    end.listen()
    listener, connector = end.listener, end.connector
    waiting = listener.get_connection_request(connector)
    end.close()
    assert final(waiting) == Status.CANCELED
    with nd_error(Status.DEVICE_REMOVED, match="get_connection_request"):
        listener.get_connection_request(connector)


@pytest.mark.parametrize("state", ["P1", "P2", "P3", "P4"])
def test_get_connection_request_invalid_parameter_1_when_the_connector_is_in_use(
    pair: Pair, state: str
) -> None:
    listener, connector = pair.passive.listener, pair.passive.connector
    if state == "P1":
        pair.listen()
        listener.get_connection_request(connector)
    else:
        pair.to_passive(state)
    with nd_error(Status.INVALID_PARAMETER_1, match="get_connection_request"):
        listener.get_connection_request(connector)


@pytest.mark.parametrize("connector", [None, 17, object()], ids=["none", "number", "object"])
def test_get_connection_request_invalid_parameter_1_when_it_is_not_a_connector(
    end: End, connector: Any
) -> None:
    end.listen()
    with nd_error(Status.INVALID_PARAMETER_1):
        end.listener.get_connection_request(connector)


@pytest.mark.parametrize("bound", [False, True])
def test_get_connection_request_invalid_device_state_when_not_listening(
    end: End, bound: bool
) -> None:
    if bound:
        end.listener.bind((end.host, 0))
    with nd_error(Status.INVALID_DEVICE_STATE, match="get_connection_request"):
        end.listener.get_connection_request(end.connector)


# Release


def test_close_leaves_delivered_requests_alone(pair: Pair) -> None:
    pair.to("A2")
    pair.passive.listener.close()
    pair.passive.listener.close()
    pair.accept()
    pair.complete()
    pair.exchange()
    with pytest.raises(NdError):
        pair.passive.listener.get_connection_request(pair.passive.new_connector())


def test_close_refuses_undelivered_requests(pair: Pair) -> None:
    pair.listen()
    waiting = [knock(pair) for _ in range(3)]
    pair.passive.listener.close()
    assert [final(overlapped) for overlapped in waiting] == [Status.CONNECTION_REFUSED] * 3


def test_an_abandoned_request_in_the_backlog_is_never_handed_out(pair: Pair) -> None:
    pair.listen()
    connector = pair.active.new_connector()
    connector.connect(pair.active.new_qp(), pair.address, 0, 0, b"abandoned")
    connector.cancel_overlapped_requests()
    knock(pair, b"serious")
    pair.offered()
    offered = pair.passive.connector.get_private_data()
    if offered == b"abandoned":  # handed out before the news came: then accepting must tell
        status = outcome(pair.passive.connector.accept, pair.passive.qp)
        assert status == Status.CONNECTION_ABORTED
    else:
        assert offered == b"serious"


def test_the_port_of_a_process_that_died_is_free(ends: Ends, kill: Callable[[], int]) -> None:
    pair = ends.pair("two")
    pair.listen()
    with nd_error(Status.SHARING_VIOLATION):
        pair.active.listener.bind(pair.address)
    kill()
    deadline_free(pair)


def deadline_free(pair: Pair) -> None:
    """The broker hears of the death by itself, a moment after it."""
    for _ in range(500):
        try:
            pair.active.listener.bind(pair.address)
        except NdError as error:
            if error.status != Status.SHARING_VIOLATION:
                raise
            pair.active.cq.wait(timeout=0.01)
        else:
            return
    raise AssertionError(f"{pair.address} is still taken")
