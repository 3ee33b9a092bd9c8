# SPDX-License-Identifier: Apache-2.0
"""The state tables of connectors, cell by cell: every call and every event in every state."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

from shmnd.handshake.attempt import State
from shmnd.handshake.queue_pair_link import QpState
from shmnd.info import LIMITS
from shmnd.status import NdError, Status
from unit.fakes import World
from unit.sides import STATES, End, Sides, outcome

S = Status
OK, PENDING = S.SUCCESS, S.PENDING
INVALID, ACTIVE = S.CONNECTION_INVALID, S.CONNECTION_ACTIVE
ASSOCIATED, PARAMETER_1 = S.ADDRESS_ALREADY_ASSOCIATED, S.INVALID_PARAMETER_1
REFUSED, CANCELED, ABORTED = S.CONNECTION_REFUSED, S.CANCELED, S.CONNECTION_ABORTED


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


def listening(end: End) -> Any:
    listener = end.new_listener()
    listener.bind((end.adapter._host, 0))
    listener.listen()
    end.kept.append(listener)
    return listener


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
def test_cell(sides: Sides, state: str, call: str, status: Status) -> None:
    sides.to(state)
    end = sides.side(state)
    end.file.poll()
    assert CALLS[call](sides, end) is status
    assert end.state is STATES[MOVES.get((state, call), state)]
    if status not in (OK, PENDING):
        assert not end.file.poll(), "a call that raised delivers nothing"


@pytest.mark.parametrize("call", ["bind", "connect", "accept", "reject"])
@pytest.mark.parametrize("state", STATES)
def test_a_refused_call_says_nothing_to_the_broker(sides: Sides, state: str, call: str) -> None:
    sides.to(state)
    end = sides.side(state)
    table = ACTIVE_TABLE if state[0] == "A" else PASSIVE_TABLE
    said = len(sides.world.broker.calls)
    if CALLS[call](sides, end) not in (OK, PENDING):
        assert len(sides.world.broker.calls) == said
        assert table[call][int(state[1])] not in (OK, PENDING)


# -- what the other side does ---------------------------------------------------------------------


def expect(sides: Sides, active: str, passive: str) -> None:
    assert (sides.active.state, sides.passive.state) == (STATES[active], STATES[passive])


def test_the_whole_handshake(sides: Sides) -> None:
    sides.bind()
    sides.offer()
    expect(sides, "A2", "P2")
    assert sides.connecting.status is PENDING
    sides.accept()
    expect(sides, "A3", "P3")
    assert (sides.connecting.status, sides.accepting.status) == (OK, PENDING)
    assert sides.active.connector.complete_connect().status is OK
    expect(sides, "A4", "P4")
    assert sides.accepting.status is OK
    assert sides.passive.connector.disconnect().status is OK
    expect(sides, "A5", "P6")
    assert sides.active.connector.disconnect().status is OK
    expect(sides, "A6", "P6")
    sides.assert_nothing_undecided()
    delivered = [ov.call.split(".")[1] for ov in sides.active.file.poll()]
    assert delivered == ["connect", "complete_connect", "disconnect"]
    delivered = [ov.call.split(".")[1] for ov in sides.passive.file.poll()]
    assert delivered == ["get_connection_request", "accept", "disconnect"]


def test_a2_peer_rejects(sides: Sides) -> None:
    sides.to("A2")
    sides.passive.connector.reject(b"no room")
    assert sides.connecting.status is REFUSED
    with pytest.raises(ConnectionRefusedError, match="refused"):
        sides.connecting.result()
    assert sides.active.connector.get_private_data() == b"no room"
    expect(sides, "A0", "P6")
    assert sides.active.qp._state == QpState.IDLE
    sides.assert_nothing_undecided()


def test_a2_peer_releases_its_connector(sides: Sides) -> None:
    sides.to("A2")
    sides.passive.connector.close()
    assert sides.connecting.status is REFUSED
    expect(sides, "A0", "P6")
    sides.assert_nothing_undecided()


@pytest.mark.parametrize("how", ["backlog", "armed and closed"])
def test_a2_listener_is_closed_before_it_hands_out(sides: Sides, how: str) -> None:
    sides.connect()
    sides.listener.close()
    assert sides.connecting.status is REFUSED
    assert sides.active.state is State.NEW
    sides.assert_nothing_undecided()


def test_a2_the_process_of_the_peer_dies(sides: Sides) -> None:
    sides.to("A2")
    sides.world.broker.leave(sides.passive.engine.client.number)
    assert sides.connecting.status is REFUSED
    assert sides.active.state is State.NEW


def test_a2_cancel(sides: Sides) -> None:
    sides.to("A2")
    sides.active.connector.cancel_overlapped_requests()
    assert repr(sides.connecting).startswith("<Overlapped Connector.connect CANCELED")
    assert sides.active.file.poll() == [sides.connecting]
    assert sides.active.qp._state == QpState.IDLE
    expect(sides, "A0", "P6")
    for call in (
        lambda: sides.passive.connector.accept(sides.passive.qp),
        sides.passive.connector.reject,
        sides.passive.connector.reject,
    ):
        assert outcome(call) is ABORTED
    assert sides.passive.connector.get_private_data() == b"the offer"
    assert sides.passive.qp._state == QpState.IDLE
    sides.assert_nothing_undecided()


@pytest.mark.parametrize("answer", ["accept", "reject"])
def test_p2_an_abandonment_that_the_passive_side_has_not_heard_of(
    sides: Sides, answer: str
) -> None:
    sides.to("P2")
    args = [sides.passive.qp] if answer == "accept" else []
    # The event is still on its way, but the broker's reply tells.
    sides.world.broker.fail[answer] = ABORTED
    assert outcome(getattr(sides.passive.connector, answer), *args) is ABORTED
    # An asked Accept that fails ends the attempt for the other side too.
    asked = sides.world.broker.room_to_ask and answer == "accept"
    expect(sides, "A0" if asked else "A2", "P6")
    assert sides.passive.qp._state == QpState.IDLE
    assert outcome(getattr(sides.passive.connector, answer), *args) is ABORTED
    sides.active.connector.cancel_overlapped_requests()
    sides.assert_nothing_undecided()


@pytest.fixture
def slow(sides: Sides) -> Sides:
    """Ends whose broker is slow to take a Connect or Accept."""
    sides.world.broker.room_to_ask = sides.world.broker.slow = True
    return sides


def heard(sides: Sides) -> None:
    for end in sides.active, sides.passive:
        end.engine.client.be_heard()


def test_the_local_address_of_a_connect_that_the_broker_has_not_taken(slow: Sides) -> None:
    slow.connect()
    host, port = slow.active.connector.get_local_address()
    assert host == "127.0.0.1"
    assert port > 0
    slow.request()
    assert slow.requesting.status is OK
    assert slow.passive.connector.get_peer_address() == (host, port)


@pytest.mark.parametrize("how", ["cancel", "close the connector", "close the queue pair"])
def test_a_connect_is_given_up_before_the_broker_has_taken_it(slow: Sides, how: str) -> None:
    slow.request()
    slow.connect()
    if how == "cancel":
        slow.active.connector.cancel_overlapped_requests()
    elif how == "close the connector":
        slow.active.connector.close()
    else:
        slow.active.qp.close()
    assert slow.connecting.status is CANCELED
    heard(slow)
    # The offer may have come, and is over: Accept fails.
    assert slow.requesting.status is OK
    assert outcome(slow.passive.connector.accept, slow.passive.qp) is ABORTED
    slow.assert_nothing_undecided()


def test_an_accept_that_the_broker_took_after_the_active_side_gave_up(slow: Sides) -> None:
    slow.offer_slowly(heard)
    accepting = slow.accept()
    slow.active.connector.cancel_overlapped_requests()
    assert accepting.status is ABORTED
    assert slow.passive.state is State.CLOSED
    assert slow.passive.qp._state == QpState.IDLE
    heard(slow)
    assert slow.active.state is State.NEW
    slow.assert_nothing_undecided()


@pytest.mark.parametrize("what", ["connect", "accept"])
def test_a_broker_that_dies_before_it_has_taken_it(slow: Sides, what: str) -> None:
    if what == "connect":
        slow.connect()
        slow.world.broker.die()
        assert slow.connecting.status is REFUSED
        assert slow.active.state is State.NEW
    else:
        slow.offer_slowly(heard)
        accepting = slow.accept()
        slow.world.broker.die()
        assert accepting.status is ABORTED
        assert slow.passive.state is State.CLOSED
        assert slow.connecting.status is REFUSED
    slow.assert_nothing_undecided()


def test_a_broker_without_room_for_an_accept_leaves_the_offer(slow: Sides) -> None:
    slow.offer_slowly(heard)
    slow.world.broker.fail["accept"] = S.INSUFFICIENT_RESOURCES
    accepting = slow.accept()
    heard(slow)
    assert accepting.status is S.INSUFFICIENT_RESOURCES
    assert slow.passive.state is State.OFFERED
    assert slow.passive.qp._state == QpState.IDLE
    slow.accept()
    heard(slow)
    slow.connecting.result(5)
    slow.active.connector.complete_connect()
    assert slow.accepting.status is OK


RELEASES = ["close", "with", "del", "collect"]


def release(holder: Any, name: str, how: str) -> None:
    """End the life of an object in one of the ways that Python has."""
    if how == "close":
        getattr(holder, name).close()
        getattr(holder, name).close()
    elif how == "with":
        with getattr(holder, name):
            pass
    else:
        if how == "collect":
            obj = getattr(holder, name)
            obj.circle = obj
            del obj
        delattr(holder, name)
        gc.collect()


@pytest.mark.parametrize("how", RELEASES)
def test_a2_connector_is_released(sides: Sides, how: str) -> None:
    sides.to("A2")
    release(sides.active, "connector", how)
    assert sides.connecting.status is CANCELED
    assert sides.active.file.poll() == [sides.connecting]
    assert sides.active.qp._state == QpState.IDLE
    assert outcome(sides.passive.connector.reject) is ABORTED
    sides.assert_nothing_undecided()


def test_a2_queue_pair_is_dropped(sides: Sides) -> None:
    """The pending Connect keeps it; when that is over nothing does."""
    sides.to("A2")
    release(sides.active, "qp", "del")
    assert sides.connecting.status is PENDING
    sides.passive.connector.reject()
    assert sides.connecting.status is REFUSED
    sides.assert_nothing_undecided()


@pytest.mark.parametrize("looks", [True, False])
def test_a2_queue_pair_is_released(sides: Sides, looks: bool) -> None:
    sides.to("A2")
    release(sides.active, "qp", "close")
    # The peer hears of it even if this process never makes another call.
    assert outcome(sides.passive.connector.reject) is ABORTED
    if looks:
        assert sides.connecting.status is CANCELED
        assert sides.active.state is State.CLOSED
    else:
        sides.active.connector.close()
        assert sides.connecting._seen() is CANCELED
    sides.assert_nothing_undecided()


@pytest.mark.parametrize("rejected", [True, False])
def test_a3_reject_or_release(sides: Sides, rejected: bool) -> None:
    sides.to("A3")
    if rejected:
        sides.active.connector.reject(b"changed my mind")
    else:
        del sides.active.connector
    assert sides.accepting.status is REFUSED
    assert sides.passive.state is State.CLOSED
    for end in (sides.active, sides.passive):
        assert end.qp._state == QpState.IDLE, "not connected, and its Receives stay posted"
    sides.assert_nothing_undecided()


def test_a3_queue_pair_is_released(sides: Sides) -> None:
    sides.to("A3")
    del sides.active.qp
    assert sides.accepting.status is REFUSED
    expect(sides, "A6", "P6")
    assert outcome(sides.active.connector.complete_connect) is INVALID
    sides.assert_nothing_undecided()


@pytest.mark.parametrize("how", ["cancel", *RELEASES])
def test_a3_peer_gives_up(sides: Sides, how: str) -> None:
    sides.to("A3")
    if how == "cancel":
        sides.passive.connector.cancel_overlapped_requests()
    else:
        release(sides.passive, "connector", how)
    assert sides.accepting.status is CANCELED
    assert sides.passive.qp._state == QpState.IDLE
    assert outcome(sides.active.connector.complete_connect) is INVALID
    assert sides.active.state is State.CLOSED
    sides.assert_nothing_undecided()


@pytest.mark.parametrize("dies", ["active", "passive"])
def test_the_process_dies_between_accept_and_complete(sides: Sides, dies: str) -> None:
    sides.to("A3")
    end, other = sides.active, sides.passive
    if dies == "active":
        end, other = other, end
    end.engine.peer_adapter(other.adapter.uid).mark_dead()
    if dies == "active":
        assert sides.accepting.status is REFUSED
    else:
        assert outcome(end.connector.complete_connect) is INVALID
    assert end.state is State.CLOSED


def test_p3_never_times_out(sides: Sides) -> None:
    sides.to("P3")
    with pytest.raises(TimeoutError, match=r"waiting for 127\.0\.0\.1:"):
        sides.accepting.result(0)
    assert sides.accepting.status is PENDING


def test_p3_is_connected_before_the_accept_is_looked_at(sides: Sides) -> None:
    sides.to("P3")
    sides.active.connector.complete_connect()
    assert sides.passive.connector.disconnect().status is OK
    assert sides.accepting._seen() is OK
    assert sides.active.state is State.DOWN


def test_p3_cancel_after_the_peer_completed_is_too_late(sides: Sides) -> None:
    sides.to("P3")
    sides.active.connector.complete_connect()
    sides.passive.connector.cancel_overlapped_requests()
    assert sides.accepting._seen() is OK
    expect(sides, "A4", "P4")


def test_p3_opened_and_disconnected_before_anybody_looks(sides: Sides) -> None:
    sides.to("P3")
    sides.active.connector.complete_connect()
    sides.active.connector.disconnect()
    assert sides.accepting.status is OK
    assert sides.passive.connector.notify_disconnect().status is OK
    assert sides.passive.connector.disconnect().status is OK
    sides.assert_nothing_undecided()


def test_p3_queue_pair_is_released(sides: Sides) -> None:
    sides.to("P3")
    sides.passive.qp.close()
    assert sides.accepting.status is CANCELED
    assert outcome(sides.active.connector.complete_connect) is INVALID
    expect(sides, "A6", "P6")
    sides.assert_nothing_undecided()


ENDINGS: dict[str, Callable[[End], Any]] = {
    "disconnect": lambda end: end.connector.disconnect(),
    "connector closed": lambda end: end.connector.close(),
    "queue pair closed": lambda end: end.qp.close(),
    "queue pair dropped": lambda end: delattr(end, "qp"),
    "both dropped": lambda end: (delattr(end, "connector"), delattr(end, "qp")),
    "fault": lambda end: end.qp.fault(),
}


@pytest.mark.parametrize("who", ["active", "passive"])
@pytest.mark.parametrize("how", ENDINGS)
def test_a4_p4_one_side_ends_it(sides: Sides, who: str, how: str) -> None:
    sides.to("A4")
    one = getattr(sides, who)
    other = sides.passive if who == "active" else sides.active
    here, there = one.connector.notify_disconnect(), other.connector.notify_disconnect()
    ENDINGS[how](one)
    assert (here.status, there.status) == (OK, OK)
    assert other.state is State.DOWN
    assert other.connector.notify_disconnect().status is OK
    assert other.connector.disconnect().status is OK
    if how == "fault":
        assert one.state is State.DOWN
        assert one.connector.disconnect().status is OK
    sides.assert_nothing_undecided()


@pytest.mark.parametrize("who", ["active", "passive"])
def test_a4_p4_connector_is_dropped(sides: Sides, who: str) -> None:
    """The connection lasts as long as its queue pair does."""
    sides.to("A4")
    one = getattr(sides, who)
    other = sides.passive if who == "active" else sides.active
    notice = other.connector.notify_disconnect()
    release(one, "connector", "del")
    assert notice.status is PENDING
    assert one.qp._state == QpState.CONNECTED
    one.qp.close()
    assert notice.status is OK
    assert other.connector.disconnect().status is OK
    sides.assert_nothing_undecided()


def test_a4_the_process_of_the_peer_dies(sides: Sides) -> None:
    sides.to("A4")
    notice = sides.active.connector.notify_disconnect()
    sides.active.engine.peer_adapter(sides.passive.adapter.uid).mark_dead()
    assert notice.status is OK
    assert sides.active.state is State.DOWN
    assert sides.active.connector.disconnect().status is OK


def test_both_disconnect_at_the_same_time(sides: Sides) -> None:
    sides.to("A4")
    assert sides.active.connector.disconnect().status is OK
    assert sides.passive.connector.disconnect().status is OK
    sides.assert_nothing_undecided()


def test_a_queue_pair_that_was_connected_cannot_be_used_again(sides: Sides) -> None:
    sides.to("A6")
    fresh = sides.active.new_connector()
    assert outcome(fresh.connect, sides.active.qp, sides.address) is CANCELED
    assert fresh._state is State.NEW


# -- operations that end with the connection ------------------------------------------------------


def test_notify_is_canceled_only_by_a_cancel(sides: Sides) -> None:
    sides.to("A4")
    notices = [sides.active.connector.notify_disconnect() for _ in range(3)]
    sides.active.file.poll()
    sides.active.connector.cancel_overlapped_requests()
    assert sides.active.file.poll() == notices
    assert {notice.status for notice in notices} == {CANCELED}
    assert not sides.active.connector._notifying
    last = sides.active.connector.notify_disconnect()
    sides.active.connector.disconnect()
    assert last.status is OK


@pytest.mark.parametrize("released", [True, False])
def test_a_disconnect_that_takes_steps(sides: Sides, released: bool) -> None:
    """Disconnect pending while everything is released (rule G4) ends in its own time."""
    sides.to("A4")
    sides.active.qp.steps_to_disconnect = 3
    pending = sides.active.connector.disconnect()
    assert pending._seen() is PENDING
    if released:
        del sides.active.connector
        del sides.active.qp
    pending.result(5)
    assert sides.active.file.poll()[-1] is pending
    sides.passive.connector.close()
    sides.assert_nothing_undecided()


def test_a_disconnect_cannot_be_canceled(sides: Sides) -> None:
    sides.to("A4")
    sides.active.qp.steps_to_disconnect = 1000
    pending = sides.active.connector.disconnect()
    assert outcome(sides.active.connector.cancel_overlapped_requests) is S.UNSUCCESSFUL
    assert pending._seen() is PENDING
    sides.active.qp.steps_to_disconnect = 0
    assert pending.status is OK
    sides.active.connector.cancel_overlapped_requests()


def test_a_release_without_disconnect_that_takes_steps(sides: Sides) -> None:
    sides.to("A4")
    sides.active.qp.steps_to_disconnect = 2
    sides.active.connector.close()
    del sides.active.qp
    notice = sides.passive.connector.notify_disconnect()
    for _ in range(3):
        sides.active.engine.progress()
    assert notice.status is OK
    assert not sides.active.engine.pending_operations._lingering


# -- requests -------------------------------------------------------------------------------------


def test_p1_the_oldest_request_gets_the_oldest_connect(sides: Sides) -> None:
    connectors = [sides.passive.new_connector() for _ in range(3)]
    waiting = [sides.listener.get_connection_request(c) for c in connectors]
    for number in range(3):
        other = sides.active.new_connector()
        pending = other.connect(sides.active.new_qp(), sides.address, 0, 0, b"%d" % number)
        assert [ov.status for ov in waiting] == [OK] * (number + 1) + [PENDING] * (2 - number)
        assert connectors[number].get_private_data() == b"%d" % number
        assert pending.status is PENDING
        connectors[number].close()
        assert pending.status is REFUSED


def test_p1_listener_cancel_frees_the_connectors_in_order(sides: Sides) -> None:
    connectors = [sides.passive.new_connector() for _ in range(3)]
    waiting = [sides.listener.get_connection_request(c) for c in connectors]
    sides.listener.cancel_overlapped_requests()
    assert sides.passive.file.poll() == waiting
    assert {ov.status for ov in waiting} == {CANCELED}
    again = sides.listener.get_connection_request(connectors[1])
    sides.connect()
    assert again.status is OK


def test_p1_cancel_meets_an_offer_on_its_way(sides: Sides) -> None:
    """Neither lost nor handed out twice: the request ends with the offer."""
    sides.to("P1")
    sides.connect()
    sides.listener.cancel_overlapped_requests()
    assert sides.requesting._seen() is OK
    sides.accept()
    assert sides.connecting.status is OK


@pytest.mark.parametrize("how", RELEASES)
def test_p1_listener_is_released(sides: Sides, how: str) -> None:
    sides.to("P1")
    release(sides, "listener", how)
    assert sides.requesting.status is CANCELED
    assert sides.passive.file.poll() == [sides.requesting]
    assert sides.passive.state is State.NEW
    sides.listener = sides.passive.new_listener()
    sides.listener.bind(sides.address)
    sides.listener.listen()
    sides.to("A4")


def test_p1_listener_is_released_with_an_offer_on_its_way(sides: Sides) -> None:
    sides.to("P1")
    sides.connect()
    sides.listener.close()
    assert sides.requesting._seen() is CANCELED
    assert sides.passive.state is State.NEW
    assert sides.connecting.status is REFUSED
    sides.assert_nothing_undecided()


def test_p1_an_offer_of_a_listener_that_was_closed_is_not_taken_for_another(
    sides: Sides,
) -> None:
    sides.to("P1")
    sides.connect(b"for the first")
    sides.listener.close()
    sides.listener = sides.passive.new_listener()
    sides.listener.bind(sides.address)
    sides.listener.listen()
    again = sides.request()
    assert again.status is PENDING
    assert sides.connecting.status is REFUSED
    sides.connect(b"for the second")
    assert again.status is OK
    assert sides.passive.connector.get_private_data() == b"for the second"


def test_p1_connector_is_dropped(sides: Sides) -> None:
    """The pending GetConnectionRequest keeps it; when that is over nothing does."""
    sides.to("P1")
    release(sides.passive, "connector", "del")
    assert sides.requesting.status is PENDING
    sides.connect()
    assert sides.requesting.status is OK
    sides.world.progress()
    assert sides.connecting.status is REFUSED
    sides.assert_nothing_undecided()


@pytest.mark.parametrize("how", ["close", "with"])
@pytest.mark.parametrize("offered", [True, False])
def test_p1_connector_is_released(sides: Sides, how: str, offered: bool) -> None:
    sides.to("P1")
    if offered:
        sides.connect()
    release(sides.passive, "connector", how)
    assert sides.requesting.status is CANCELED
    if not offered:
        sides.connect()
        sides.passive.connector = sides.passive.new_connector()
        sides.request()
        assert sides.requesting.status is OK
        sides.passive.connector.close()
    sides.world.progress()
    assert sides.connecting.status is REFUSED
    sides.assert_nothing_undecided()


def test_a_listener_that_is_closed_does_not_touch_what_it_handed_out(sides: Sides) -> None:
    sides.to("A2")
    sides.listener.close()
    sides.accept()
    sides.active.connector.complete_connect()
    assert sides.accepting.status is OK


def test_crossed_connects(world: World) -> None:
    one, two = Sides(world), Sides(world)
    two.active, two.passive = End(world, "127.0.0.2"), one.active
    there = one.connect()
    back_listener = one.active.new_listener()
    back_listener.bind(("127.0.0.1", 0))
    back_listener.listen()
    far, far_qp = one.passive.new_connector(), one.passive.new_qp()
    back = far.connect(far_qp, back_listener.get_local_address())
    near = one.active.new_connector()
    assert back_listener.get_connection_request(near).status is OK
    assert one.request().status is OK
    one.accept()
    near.reject()
    assert (there.status, back.status) == (OK, REFUSED)
    back_listener.close()


def test_both_ends_in_one_process_and_one_adapter(world: World) -> None:
    adapter = world.adapter()
    sides = Sides.__new__(Sides)
    sides.world = world
    sides.active = End(world, "127.0.0.1")
    sides.active.adapter.close()
    for end_name in ("active", "passive"):
        end = End.__new__(End)
        end.adapter = adapter
        end.file = sides.active.file
        end.kept = []
        end.connector, end.qp = end.new_connector(), end.new_qp()
        end.connector._file = None
        setattr(sides, end_name, end)
    sides.listener = sides.passive.new_listener()
    sides.listener._file = None
    sides.listener.bind(("::", 0))
    sides.listener.listen()
    sides.address = "127.0.0.1", sides.listener.get_local_address()[1]
    sides.complete()
    assert set(adapter._engine.broker_state.live) == {
        (role, next(iter(adapter._engine.broker_state.live))[1]) for role in ("active", "passive")
    }
    notice = sides.passive.connector.notify_disconnect()
    sides.active.connector.disconnect()
    assert notice.status is OK
    sides.passive.connector.close()
    assert not world.broker.rendezvous.connections.records


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
def test_connect_where_nobody_listens(sides: Sides, bound: bool, port: int) -> None:
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


def test_connect_that_cannot_map_the_link_gives_up(sides: Sides) -> None:
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
def test_the_local_address_that_nobody_chose(sides: Sides, bound: str | None) -> None:
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


# -- read limits and private data -----------------------------------------------------------------


def test_read_limits_are_negotiated_by_the_table(world: World) -> None:
    sides = Sides(world)
    cap = LIMITS.max_inbound_read_limit
    for a_in, a_out, p_in, p_out in (
        (5, 7, 9, 3),
        (5, 7, 6, 8),
        (0, 0, 10, 10),
        (cap + 6, cap + 6, 2**32 - 1, 2**32 - 1),
        (1, 0, 0, 1),
    ):
        active, passive = sides.active, sides.passive
        active.connector, active.qp = active.new_connector(), active.new_qp()
        passive.connector, passive.qp = passive.new_connector(), passive.new_qp()
        sides.connecting = active.connector.connect(active.qp, sides.address, a_in, a_out)
        sides.request().result(5)
        assert passive.connector.get_read_limits() == (min(a_out, cap), min(a_in, cap))
        passive.connector.accept(passive.qp, p_in, p_out)
        sides.connecting.result(5)
        agreed_in, agreed_out = min(p_in, cap, a_out), min(p_out, cap, a_in)
        assert passive.connector.get_read_limits() == (agreed_in, agreed_out)
        assert passive.qp.attached_limits == (agreed_in, agreed_out)
        assert active.connector.get_read_limits() == (agreed_out, agreed_in)
        assert active.qp.attached_limits == (agreed_out, agreed_in)
        active.connector.complete_connect()
        assert active.connector.get_read_limits() == (agreed_out, agreed_in)
        active.connector.close()
        passive.connector.close()


def test_private_data_into_a_buffer(sides: Sides) -> None:
    sides.to("P2")
    connector = sides.passive.connector
    for room in (None, bytearray(0), bytearray(4)):
        with pytest.raises(BufferError) as caught:
            connector.get_private_data_into(room)
        assert isinstance(caught.value, NdError)
        assert caught.value.status is S.BUFFER_OVERFLOW
        assert caught.value.required == len(b"the offer")
        assert room in (None, bytearray(b""), bytearray(b"the "))
    room = bytearray(b"." * 12)
    assert connector.get_private_data_into(room) == 9
    assert room == b"the offer..."
    with pytest.raises(NdError):
        sides.active.connector.get_private_data_into(room)


def test_no_private_data_is_no_bytes(sides: Sides) -> None:
    sides.connect(b"")
    sides.request()
    assert sides.passive.connector.get_private_data() == b""
    assert sides.passive.connector.get_private_data_into(None) == 0
    sides.passive.connector.reject()
    assert sides.connecting.status is REFUSED
    assert sides.active.connector.get_private_data() == b""


def test_private_data_of_an_earlier_attempt_is_forgotten(sides: Sides) -> None:
    sides.to("A2")
    sides.passive.connector.reject(b"go away")
    sides.connecting.done()
    sides.passive.connector = sides.passive.new_connector()
    sides.offer()
    assert outcome(sides.active.connector.get_private_data) is INVALID


def test_addresses_into_a_buffer(sides: Sides) -> None:
    sides.to("P2")
    for into in (
        sides.passive.connector.get_local_address_into,
        sides.passive.connector.get_peer_address_into,
        sides.listener.get_local_address_into,
    ):
        short = bytearray(15)
        with pytest.raises(NdError) as caught:
            into(short)
        assert (caught.value.status, caught.value.required) == (S.BUFFER_OVERFLOW, 16)
        assert short == bytes(15)
        assert into(bytearray(16)) == 16


def test_limits_that_make_no_sense_count_as_none(sides: Sides) -> None:
    from shmnd.handshake.attempt import ReadLimits, Terms, private_of

    for nonsense in (None, 7, [1], [1, 2, 3], [-1, 0], ["1", "2"], [2**40, 1], [True, False]):
        assert ReadLimits.told(nonsense) == (0, 0)
    assert Terms.read({}) == Terms(ReadLimits(0, 0), {})
    assert Terms.read({"qp": 7, "limits": [1, 2]}).qp == {}
    assert private_of({"private": "!"}) == b""


# -- the listener ---------------------------------------------------------------------------------


def test_listener_states(sides: Sides) -> None:
    fresh = sides.passive.new_listener()
    connector = sides.passive.new_connector()
    state = S.INVALID_DEVICE_STATE
    for call in (fresh.listen, fresh.get_local_address, fresh.get_local_address):
        assert outcome(call) is state
    assert outcome(fresh.get_connection_request, connector) is state
    assert outcome(fresh.bind, sides.address) is S.SHARING_VIOLATION
    assert outcome(fresh.bind, ("192.0.2.1", 0)) is S.INVALID_ADDRESS
    assert outcome(fresh.bind, 7) is PARAMETER_1
    assert outcome(fresh.bind, ("127.0.0.2", 0)) is OK
    assert outcome(fresh.bind, ("127.0.0.2", 0)) is ASSOCIATED
    assert outcome(fresh.get_local_address) is state
    assert outcome(fresh.get_connection_request, connector) is state
    for backlog in (-1, "1", None, True):
        assert outcome(fresh.listen, backlog) is PARAMETER_1
    assert outcome(fresh.listen, 2**40) is OK
    assert outcome(fresh.listen) is state
    assert outcome(fresh.bind, ("127.0.0.2", 0)) is ASSOCIATED
    assert fresh.get_local_address()[0] == "127.0.0.2"
    for wrong in (None, sides.passive.qp, sides.active.new_connector()):
        assert outcome(fresh.get_connection_request, wrong) is PARAMETER_1
    assert repr(fresh).startswith("<Listener listening at ")
    fresh.close()
    fresh.close()
    for call in (fresh.listen, fresh.get_local_address):
        assert outcome(call) is state
    assert outcome(fresh.bind, ("127.0.0.2", 0)) is state
    assert outcome(fresh.get_connection_request, connector) is state
    assert connector._state is State.NEW


def test_a_request_that_the_broker_refuses_leaves_the_connector_free(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmnd.listener._CERTAINLY_TAKEN", 0)
    sides.world.broker.fail["request"] = S.INSUFFICIENT_RESOURCES
    call = sides.listener.get_connection_request
    assert outcome(call, sides.passive.connector) is S.INSUFFICIENT_RESOURCES
    assert not sides.passive.file.poll()
    sides.listener.cancel_overlapped_requests()
    sides.complete()


def test_the_backlog_is_bounded(sides: Sides) -> None:
    listener = sides.passive.new_listener()
    listener.bind(("127.0.0.2", 0))
    listener.listen(2)
    address = listener.get_local_address()
    makers = [sides.active.new_connector() for _ in range(3)]
    qps = [sides.active.new_qp() for _ in makers]
    pending = [m.connect(qp, address) for m, qp in zip(makers, qps, strict=True)]
    assert [ov.status for ov in pending] == [PENDING, PENDING, REFUSED]
    listener.close()
    assert [ov.status for ov in pending] == [REFUSED] * 3


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


# -- when the broker dies -------------------------------------------------------------------------

AFTER_THE_BROKER = {
    "A0": "A0",
    "A1": "A1",
    "A2": "A0",
    "A3": "A3",
    "A4": "A4",
    "A5": "A5",
    "A6": "A6",
    "P0": "P0",
    "P1": "P1",
    "P2": "P6",
    "P3": "P3",
    "P4": "P4",
    "P5": "P5",
    "P6": "P6",
}


@pytest.mark.parametrize("state", STATES)
def test_the_broker_dies_in_every_state(sides: Sides, state: str) -> None:
    sides.to(state)
    end = sides.side(state)
    sides.world.broker.die()
    sides.world.progress()
    sides.world.progress()
    assert end.state is STATES[AFTER_THE_BROKER[state]]
    if state in ("A2", "P2"):
        assert sides.connecting.status is REFUSED
        assert sides.active.qp._state == QpState.IDLE
        assert outcome(sides.passive.connector.accept, sides.passive.qp) is ABORTED
    elif state in ("A3", "P3"):
        sides.active.connector.complete_connect()
        assert sides.accepting.status is OK
    elif state == "P1":
        sides.connect()
        assert sides.requesting.status is OK
    if state in ("A3", "P3", "A4", "P4"):
        notice = sides.passive.connector.notify_disconnect()
        assert sides.active.connector.disconnect().status is OK
        assert notice.status is OK
    sides.active.connector.close()
    sides.passive.connector.close()
    sides.active.engine.sync()
    sides.assert_nothing_undecided()


def test_a_listener_is_found_again_after_the_broker_died(sides: Sides) -> None:
    sides.world.broker.die()
    sides.passive.engine.progress()
    assert sides.listener.get_local_address() == sides.address
    sides.complete()


def test_a_new_broker_knows_the_ports_of_live_connections(sides: Sides) -> None:
    sides.to("A4")
    taken = sides.active.connector.get_local_address()
    sides.world.broker.die()
    sides.active.engine.sync()
    sides.passive.engine.sync()
    other = sides.passive.new_connector()
    assert outcome(other.bind, taken) is S.SHARING_VIOLATION
    assert len(sides.world.broker.rendezvous.connections.records) == 1
    sides.active.connector.close()
    other.bind(taken)
    sides.passive.connector.close()
    assert not sides.world.broker.rendezvous.connections.records


@pytest.mark.parametrize("kind", ["listener", "connector"])
def test_a_port_that_another_process_took_while_there_was_no_broker(
    sides: Sides, kind: str
) -> None:
    if kind == "listener":
        waiting, address = sides.request(), sides.address
        victim = sides.passive
    else:
        sides.bind()
        victim = sides.active
        assert victim.connector._port is not None
        address = victim.connector._port.address
    sides.world.broker.die()
    thief = End(sides.world, "127.0.0.1")
    thief.connector.bind(address)
    victim.engine.sync()
    victim.engine.progress()
    if kind == "listener":
        assert waiting.status is CANCELED
        assert outcome(sides.listener.get_local_address) is S.INVALID_DEVICE_STATE
        assert victim.connector._state is State.NEW
    else:
        assert victim.state is State.NEW
    thief.connector.close()


def test_an_accept_whose_answer_the_old_broker_took_along(sides: Sides) -> None:
    """The passive side accepts at a broker that never heard of the offer."""
    sides.to("P2")
    sides.world.broker.die()
    assert outcome(sides.passive.connector.accept, sides.passive.qp) is ABORTED
    assert sides.passive.qp._state == QpState.IDLE
    assert sides.passive.state is State.CLOSED
    assert sides.connecting.status is REFUSED
