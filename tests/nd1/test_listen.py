# SPDX-License-Identifier: Apache-2.0
"""INDListen."""

from collections.abc import Callable

from nd1.ends import End, Pair
from shmnd import Status
from spi.harness import WAIT, nd_error


def test_get_connection_request_success_in_the_order_of_arrival(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair()
    address = pair.address()
    connectors = [pair.passive.adapter.create_connector() for _ in range(2)]
    waiting = [pair.passive.listen.get_connection_request(each) for each in connectors]
    for number, overlapped in enumerate(waiting):
        connector = pair.active.adapter.create_connector()
        endpoint = connector.create_endpoint(pair.active.cq, pair.active.cq, 1, 1, 1, 1)
        pair.active.kept += [connector, endpoint]
        connector.connect(endpoint, address, private_data=bytes([number]))
        overlapped.result(WAIT)
        assert connectors[number].get_connection_data()[2] == bytes([number])


def test_get_connection_request_pending_until_a_peer_connects(pair: Pair) -> None:
    waiting = pair.passive.listen.get_connection_request(pair.passive.connector)
    assert waiting.status is Status.PENDING
    assert pair.passive.listen.get_overlapped_result(waiting) is Status.PENDING


def test_get_connection_request_canceled_by_a_cancel(pair: Pair) -> None:
    waiting = pair.passive.listen.get_connection_request(pair.passive.connector)
    pair.passive.listen.cancel_overlapped_requests()
    assert waiting.status is Status.CANCELED
    pair.offer()  # the connector is as new


def test_get_connection_request_canceled_when_the_listen_is_closed(pair: Pair) -> None:
    waiting = pair.passive.listen.get_connection_request(pair.passive.connector)
    pair.passive.listen.close()
    assert waiting.status is Status.CANCELED
    with nd_error(Status.CANCELED):
        pair.passive.listen.get_connection_request(pair.passive.connector)


def test_get_connection_request_device_removed_when_the_adapter_is_closed(end: End) -> None:
    listen, connector = end.listen, end.connector
    end.adapter.close()
    with nd_error(Status.DEVICE_REMOVED):
        listen.get_connection_request(connector)


def test_get_connection_request_invalid_parameter_1_when_the_connector_is_unfit(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair()
    listen, stranger, used = pair.passive.listen, pair.active.connector, pair.passive.connector
    listen.get_connection_request(used)
    for connector in (stranger, used, None):
        with nd_error(Status.INVALID_PARAMETER_1, match="get_connection_request"):
            listen.get_connection_request(connector)  # type: ignore[arg-type]
    other = pair.passive.adapter.listen(protocol=123)
    with nd_error(Status.INVALID_PARAMETER_1, match="waiting for a request"):
        other.get_connection_request(used)
    assert used._core._protocol == 6, "what it waits for is as it was"
