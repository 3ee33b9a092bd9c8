# SPDX-License-Identifier: Apache-2.0
"""The state tables of connectors, cell by cell: every call and every event in every state."""

from collections.abc import Callable

import pytest

from shmnd.handshake.attempt import State
from shmnd.handshake.queue_pair_link import QpState
from shmnd.info import LIMITS
from shmnd.status import Status
from unit.handshake.connector_kit import (
    ACTIVE,
    ASSOCIATED,
    CANCELED,
    INVALID,
    OK,
    PARAMETER_1,
    PENDING,
    REFUSED,
    S,
    expect,
    listening,
)
from unit.sides import STATES, End, Sides, outcome

# -- every call in every state --------------------------------------------------------------------
Call = Callable[[Sides, End], Status]


CALLS: dict[str, Call] = {
    "bind": lambda d, e: outcome(e.connector.bind, (e.adapter._host, 0)),
    "connect": lambda d, e: outcome(e.connector.connect, e.new_qp(), d.address),
    "complete_connect": lambda d, e: outcome(e.connector.complete_connect),
    "accept": lambda d, e: outcome(e.connector.accept, e.new_qp()),
    "reject": lambda d, e: outcome(e.connector.reject),
    "notify_disconnect": lambda d, e: outcome(e.connector.notify_disconnect),
    "disconnect": lambda d, e: outcome(e.connector.disconnect),
    "get_read_limits": lambda d, e: outcome(e.connector.get_read_limits),
    "get_private_data": lambda d, e: outcome(e.connector.get_private_data),
    "get_local_address": lambda d, e: outcome(e.connector.get_local_address),
    "get_peer_address": lambda d, e: outcome(e.connector.get_peer_address),
    "get_connection_request": lambda d, e: outcome(
        listening(e).get_connection_request, e.connector
    ),
    "cancel_overlapped_requests": lambda d, e: outcome(e.connector.cancel_overlapped_requests),
}


ACTIVE_TABLE: dict[str, tuple[Status, ...]] = {
    #                      A0       A1          A2          A3          A4        A5        A6
    "bind": (OK, ASSOCIATED, ASSOCIATED, ASSOCIATED, ASSOCIATED, ASSOCIATED, INVALID),
    "connect": (PENDING, PENDING, ACTIVE, ACTIVE, ACTIVE, ACTIVE, INVALID),
    "complete_connect": (INVALID, INVALID, INVALID, OK, INVALID, INVALID, INVALID),
    "accept": (INVALID, INVALID, INVALID, INVALID, ACTIVE, ACTIVE, INVALID),
    "reject": (INVALID, INVALID, INVALID, OK, INVALID, INVALID, INVALID),
    "notify_disconnect": (INVALID, INVALID, INVALID, INVALID, PENDING, OK, INVALID),
    "disconnect": (INVALID, INVALID, INVALID, INVALID, OK, OK, INVALID),
    "get_read_limits": (INVALID, INVALID, INVALID, OK, OK, OK, INVALID),
    "get_private_data": (INVALID, INVALID, INVALID, OK, OK, OK, OK),
    "get_local_address": (INVALID, INVALID, OK, OK, OK, OK, INVALID),
    "get_peer_address": (INVALID, INVALID, OK, OK, OK, OK, INVALID),
    "get_connection_request": (PENDING, *[PARAMETER_1] * 6),
    "cancel_overlapped_requests": (OK,) * 7,
}


PASSIVE_TABLE: dict[str, tuple[Status, ...]] = {
    #                      P0       P1          P2          P3          P4        P5        P6
    "bind": (OK, ASSOCIATED, ASSOCIATED, ASSOCIATED, ASSOCIATED, ASSOCIATED, INVALID),
    "connect": (PENDING, ACTIVE, ACTIVE, ACTIVE, ACTIVE, ACTIVE, INVALID),
    "complete_connect": (INVALID,) * 7,
    "accept": (INVALID, INVALID, PENDING, ACTIVE, ACTIVE, ACTIVE, INVALID),
    "reject": (INVALID, INVALID, OK, INVALID, INVALID, INVALID, INVALID),
    "notify_disconnect": (INVALID, INVALID, INVALID, INVALID, PENDING, OK, INVALID),
    "disconnect": (INVALID, INVALID, INVALID, INVALID, OK, OK, INVALID),
    "get_read_limits": (INVALID, INVALID, OK, OK, OK, OK, INVALID),
    "get_private_data": (INVALID, INVALID, OK, OK, OK, OK, OK),
    "get_local_address": (INVALID, INVALID, OK, OK, OK, OK, INVALID),
    "get_peer_address": (INVALID, INVALID, OK, OK, OK, OK, INVALID),
    "get_connection_request": (PENDING, *[PARAMETER_1] * 6),
    "cancel_overlapped_requests": (OK,) * 7,
}


MOVES = {
    ("A0", "bind"): "A1",
    ("A0", "connect"): "A2",
    ("A1", "connect"): "A2",
    ("A2", "cancel_overlapped_requests"): "A0",
    ("A3", "complete_connect"): "A4",
    ("A3", "reject"): "A6",
    ("A4", "disconnect"): "A6",
    ("A5", "disconnect"): "A6",
    ("A0", "get_connection_request"): "P1",
    ("P0", "bind"): "A1",
    ("P0", "connect"): "A2",
    ("P2", "accept"): "P3",
    ("P2", "reject"): "P6",
    ("P3", "cancel_overlapped_requests"): "P6",
    ("P4", "disconnect"): "P6",
    ("P5", "disconnect"): "P6",
    ("P0", "get_connection_request"): "P1",
}


CELLS = [
    (f"{letter}{number}", call, status)
    for letter, table in (("A", ACTIVE_TABLE), ("P", PASSIVE_TABLE))
    for call, row in table.items()
    for number, status in enumerate(row)
]


def test_the_tables_have_every_call() -> None:
    assert set(ACTIVE_TABLE) == set(PASSIVE_TABLE) == set(CALLS)
    assert {len(row) for row in (*ACTIVE_TABLE.values(), *PASSIVE_TABLE.values())} == {7}


@pytest.mark.parametrize(("state", "call", "status"), CELLS)
def test_each_call_in_each_state_has_the_status_of_the_table(
    sides: Sides, state: str, call: str, status: Status
) -> None:
    sides.to(state)
    end = sides.side(state)
    end.file.poll()
    assert CALLS[call](sides, end) is status
    assert end.state is STATES[MOVES.get((state, call), state)]
    if status not in (OK, PENDING):
        assert not end.file.poll(), "a call that raised delivers nothing"


@pytest.mark.parametrize("call", ["bind", "connect", "accept", "reject"])
@pytest.mark.parametrize("state", STATES)
def test_a_refused_call_sends_nothing_to_the_broker(sides: Sides, state: str, call: str) -> None:
    sides.to(state)
    end = sides.side(state)
    table = ACTIVE_TABLE if state[0] == "A" else PASSIVE_TABLE
    said = len(sides.world.broker.calls)
    if CALLS[call](sides, end) not in (OK, PENDING):
        assert len(sides.world.broker.calls) == said
        assert table[call][int(state[1])] not in (OK, PENDING)


# -- what connect and accept check ----------------------------------------------------------------
def test_connect_failures_that_change_nothing(sides: Sides) -> None:
    for prepare in (lambda: None, sides.bind):
        prepare()
        before = sides.active.connector._state
        end, said = sides.active, len(sides.world.broker.calls)
        connect = end.connector.connect
        foreign = sides.passive.new_qp()
        most = b"x" * LIMITS.max_caller_data
        for status, args in {
            S.INVALID_PARAMETER_1: [(None, sides.address), (foreign, sides.address)],
            S.INVALID_PARAMETER_2: [(end.qp, None), (end.qp, ("127.0.0.1", 65536))],
            S.INVALID_PARAMETER_4: [(end.qp, sides.address, v) for v in (-1, 2**32, "1", True)],
            S.INVALID_PARAMETER_5: [(end.qp, sides.address, 0, v) for v in (-1, 2**32, 1.0)],
            S.INVALID_ADDRESS: [(end.qp, ("nowhere", 1))],
            S.ACCESS_VIOLATION: [(end.qp, sides.address, 0, 0, v) for v in (None, "text", 7)],
            S.INVALID_BUFFER_SIZE: [(end.qp, sides.address, 0, 0, most + b"x")],
            S.BAD_NETWORK_NAME: [(end.qp, ("0.0.0.0", 1)), (end.qp, ("::", 1))],
            S.HOST_UNREACHABLE: [(end.qp, ("192.0.2.1", 1)), (end.qp, ("2001:db8::1", 1))],
        }.items():
            for each in args:
                assert outcome(connect, *each) is status, each
        assert end.connector._state is before
        assert end.qp._state == QpState.IDLE
        assert len(sides.world.broker.calls) == said
        assert not end.file.poll()
    sides.connect(memoryview(most))
    sides.request()
    assert sides.passive.connector.get_private_data() == most


def test_messages_name_call_value_and_limit(sides: Sides) -> None:
    end = sides.active
    with pytest.raises(ValueError, match=r"Connector\.connect: 513 bytes .* 512 \(MaxCallerData\)"):
        end.connector.connect(end.qp, sides.address, 0, 0, bytes(513))
    with pytest.raises(
        OSError, match=r"Connector\.connect: 192\.0\.2\.1 is not an address of this"
    ):
        end.connector.connect(end.qp, ("192.0.2.1", 7))
    refused = end.connector.connect(end.qp, ("127.0.0.1", 7))
    with pytest.raises(ConnectionRefusedError) as caught:
        refused.result()
    assert str(caught.value).count("Connector.connect") == 1
    assert str(caught.value).count("CONNECTION_REFUSED") == 1
    assert "7" in str(caught.value)
    with pytest.raises(ConnectionError, match=r"complete_connect: the connector is new"):
        end.connector.complete_connect()


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("port", [0, 7])
def test_connect_without_a_listener(sides: Sides, bound: bool, port: int) -> None:
    if bound:
        sides.bind()
    end = sides.active
    refused = end.connector.connect(end.qp, ("127.0.0.2", port))
    assert refused.status is REFUSED
    assert end.file.poll() == [refused]
    assert end.state is State.NEW
    assert end.qp._state == QpState.IDLE
    sides.assert_nothing_undecided()
    sides.complete()


def test_connect_with_a_queue_pair_in_use(sides: Sides) -> None:
    sides.to("A2")
    other = sides.active.new_connector()
    for _ in range(2):
        assert outcome(other.connect, sides.active.qp, sides.address) is ACTIVE
        assert other._state is State.NEW
        sides.accept()
        sides.connecting.result(5)
        if sides.passive.state is State.ACCEPTING:
            break
    assert outcome(other.connect, sides.active.qp, sides.address) is ACTIVE
    sides.active.connector.complete_connect()
    assert outcome(other.connect, sides.active.qp, sides.address) is ACTIVE


def test_connect_and_accept_with_a_released_queue_pair(sides: Sides) -> None:
    released = sides.active.new_qp()
    released.close()
    assert outcome(sides.active.connector.connect, released, sides.address) is CANCELED
    sides.to("P2")
    released = sides.passive.new_qp()
    released.close()
    assert outcome(sides.passive.connector.accept, released) is CANCELED
    expect(sides, "A2", "P2")


def test_accept_failures_that_change_nothing(sides: Sides) -> None:
    sides.to("P2")
    end, said = sides.passive, len(sides.world.broker.calls)
    busy = end.new_qp()
    busy._begin_connect()
    most = b"x" * LIMITS.max_callee_data
    for status, args in {
        S.INVALID_PARAMETER_1: [(None,), (sides.active.new_qp(),)],
        S.INVALID_PARAMETER_2: [(end.qp, -1), (end.qp, None)],
        S.INVALID_PARAMETER_3: [(end.qp, 0, 2**32)],
        S.ACCESS_VIOLATION: [(end.qp, 0, 0, "text")],
        S.INVALID_BUFFER_SIZE: [(end.qp, 0, 0, most + b"x")],
        S.CONNECTION_ACTIVE: [(busy,)],
    }.items():
        for each in args:
            assert outcome(end.connector.accept, *each) is status, each
    assert outcome(end.connector.reject, most + b"x") is S.INVALID_BUFFER_SIZE
    assert outcome(end.connector.reject, 7) is S.ACCESS_VIOLATION
    assert len(sides.world.broker.calls) == said
    assert end.qp._state == QpState.IDLE
    expect(sides, "A2", "P2")
    sides.accept(bytearray(most))
    assert sides.connecting.status is OK
    assert sides.active.connector.get_private_data() == most


@pytest.mark.parametrize("what", ["create_link", "accept"])
def test_accept_that_fails_inside_changes_nothing(sides: Sides, what: str) -> None:
    sides.to("P2")
    (sides.world.broker if what == "accept" else sides.passive.engine.data_plane).fail[what] = (
        S.INSUFFICIENT_RESOURCES
    )
    assert outcome(sides.passive.connector.accept, sides.passive.qp) is S.INSUFFICIENT_RESOURCES
    expect(sides, "A2", "P2")
    assert sides.passive.qp._state == QpState.IDLE
    assert not sides.passive.engine.broker_state.live
    sides.accept()
    sides.active.connector.complete_connect()
    assert sides.accepting.status is OK


def test_connect_that_cannot_map_the_link_fails(sides: Sides) -> None:
    sides.to("A2")
    sides.active.engine.data_plane.fail["attach_link"] = S.INSUFFICIENT_RESOURCES
    sides.accept()
    assert sides.connecting.status is S.INSUFFICIENT_RESOURCES
    assert sides.accepting.status is REFUSED
    expect(sides, "A0", "P6")
    assert sides.active.qp._state == sides.passive.qp._state == QpState.IDLE
    sides.assert_nothing_undecided()


def test_connect_that_the_broker_refuses_changes_nothing(sides: Sides) -> None:
    sides.world.broker.fail["connect"] = S.INSUFFICIENT_RESOURCES
    end = sides.active
    assert outcome(end.connector.connect, end.qp, sides.address) is S.INSUFFICIENT_RESOURCES
    assert end.state is State.NEW
    assert end.qp._state == QpState.IDLE
    sides.assert_nothing_undecided()
    sides.bind()
    sides.world.broker.fail["connect"] = S.ADDRESS_ALREADY_EXISTS
    assert outcome(end.connector.connect, end.qp, sides.address) is S.ADDRESS_ALREADY_EXISTS
    assert end.state is State.BOUND
    sides.complete()


@pytest.mark.parametrize("peer", ["127.0.0.2", "::1"])
def test_bound_to_one_family_there_is_no_way_to_the_other(sides: Sides, peer: str) -> None:
    bound = "::1" if peer == "127.0.0.2" else "0.0.0.0"
    sides.active.connector.bind((bound, 0))
    call = sides.active.connector.connect
    assert outcome(call, sides.active.qp, (peer, 7)) is S.NETWORK_UNREACHABLE
    assert sides.active.state is State.BOUND


@pytest.mark.parametrize("bound", [None, "0.0.0.0", "::", "127.0.0.9"])
def test_a_local_address_that_was_not_chosen(sides: Sides, bound: str | None) -> None:
    if bound:
        sides.active.connector.bind((bound, 50_001))
    sides.offer()
    host, port = sides.active.connector.get_local_address()
    assert host == ("127.0.0.9" if bound == "127.0.0.9" else "127.0.0.1")
    assert port == 50_001 if bound else port in range(49152, 65536)
    assert sides.passive.connector.get_peer_address() == (host, port)
    assert sides.passive.connector.get_local_address() == sides.address
    assert sides.active.connector.get_peer_address() == sides.address


def test_ipv6_from_an_adapter_opened_with_ipv4(sides: Sides) -> None:
    listener = sides.passive.new_listener()
    listener.bind(("::1", 0))
    listener.listen()
    sides.listener, sides.address = listener, listener.get_local_address()
    sides.complete()
    assert sides.active.connector.get_local_address()[0] == "::1"
    listener.close()


def test_ports_are_free_as_soon_as_their_owner_is_through(sides: Sides) -> None:
    for state in ("A1", "A2", "A3", "A4"):
        end = sides.active
        end.connector, end.qp = end.new_connector(), end.new_qp()
        sides.passive.connector, sides.passive.qp = (
            sides.passive.new_connector(),
            sides.passive.new_qp(),
        )
        end.connector.bind(("127.0.0.1", 50_002))
        if state != "A1":
            sides.to(state)
        other = end.new_connector()
        assert outcome(other.bind, ("127.0.0.1", 50_002)) is S.SHARING_VIOLATION
        assert other._state is State.NEW
        end.connector.close()
        other.bind(("127.0.0.1", 50_002))
        other.close()


def test_bind_failures_that_change_nothing(sides: Sides) -> None:
    bind = sides.active.connector.bind
    assert outcome(bind, None) is S.INVALID_PARAMETER_1
    assert outcome(bind, ("127.0.0.1", -1)) is S.INVALID_PARAMETER_1
    assert outcome(bind, ("192.0.2.1", 0)) is S.INVALID_ADDRESS
    assert outcome(bind, sides.address) is S.SHARING_VIOLATION
    sides.world.broker.fail["bind"] = S.TOO_MANY_ADDRESSES
    assert outcome(bind, ("127.0.0.1", 0)) is S.TOO_MANY_ADDRESSES
    assert sides.active.state is State.NEW
    sides.bind()


# -- when the adapter is closed -------------------------------------------------------------------
@pytest.mark.parametrize("state", STATES)
def test_release_after_the_adapter_and_its_engine_are_gone(sides: Sides, state: str) -> None:
    """Any order of release: nothing raises, and operations end."""
    sides.to(state)
    end = sides.side(state)
    end.adapter.close()
    assert outcome(end.connector.get_read_limits) is S.DEVICE_REMOVED
    assert outcome(end.connector.cancel_overlapped_requests) is S.DEVICE_REMOVED
    end.connector.close()
    end.qp.close()
    assert not end.connector._pending
    end.file.close()


@pytest.mark.parametrize("state", STATES)
def test_every_call_of_a_closed_adapter_is_device_removed(sides: Sides, state: str) -> None:
    sides.to(state)
    end = sides.side(state)
    end.adapter.open = False
    for name, call in CALLS.items():
        if name not in ("get_connection_request", "cancel_overlapped_requests"):
            assert call(sides, end) is S.DEVICE_REMOVED, name
    for other in (
        lambda: sides.listener.bind(("127.0.0.1", 0)),
        sides.listener.listen,
        sides.listener.get_local_address,
        lambda: sides.listener.get_connection_request(end.connector),
    ):
        if end is sides.passive:
            assert outcome(other) is S.DEVICE_REMOVED
    end.adapter.open = True
