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
from unit.sides import STATES, Dancers, End, outcome

S = Status
OK, PENDING = S.SUCCESS, S.PENDING
INVALID, ACTIVE = S.CONNECTION_INVALID, S.CONNECTION_ACTIVE
ASSOCIATED, PARAMETER_1 = S.ADDRESS_ALREADY_ASSOCIATED, S.INVALID_PARAMETER_1
REFUSED, CANCELED, ABORTED = S.CONNECTION_REFUSED, S.CANCELED, S.CONNECTION_ABORTED


# -- every call in every state --------------------------------------------------------------------

Call = Callable[[Dancers, End], Status]

CALLS: dict[str, Call] = {
    "bind": lambda d, e: outcome(e.connector.bind, (e.adapter.host, 0)),
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
    listener.bind((end.adapter.host, 0))
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
def test_cell(dancers: Dancers, state: str, call: str, status: Status) -> None:
    dancers.to(state)
    end = dancers.side(state)
    end.file.poll()
    assert CALLS[call](dancers, end) is status
    assert end.state is STATES[MOVES.get((state, call), state)]
    if status not in (OK, PENDING):
        assert not end.file.poll(), "a call that raised delivers nothing"


@pytest.mark.parametrize("call", ["bind", "connect", "accept", "reject"])
@pytest.mark.parametrize("state", STATES)
def test_a_refused_call_says_nothing_to_the_broker(dancers: Dancers, state: str, call: str) -> None:
    dancers.to(state)
    end = dancers.side(state)
    table = ACTIVE_TABLE if state[0] == "A" else PASSIVE_TABLE
    said = len(dancers.world.broker.calls)
    if CALLS[call](dancers, end) not in (OK, PENDING):
        assert len(dancers.world.broker.calls) == said
        assert table[call][int(state[1])] not in (OK, PENDING)


# -- what the other side does ---------------------------------------------------------------------


def expect(dancers: Dancers, active: str, passive: str) -> None:
    assert (dancers.active.state, dancers.passive.state) == (STATES[active], STATES[passive])


def test_the_whole_dance(dancers: Dancers) -> None:
    dancers.bind()
    dancers.offer()
    expect(dancers, "A2", "P2")
    assert dancers.connecting.status is PENDING
    dancers.accept()
    expect(dancers, "A3", "P3")
    assert (dancers.connecting.status, dancers.accepting.status) == (OK, PENDING)
    assert dancers.active.connector.complete_connect().status is OK
    expect(dancers, "A4", "P4")
    assert dancers.accepting.status is OK
    assert dancers.passive.connector.disconnect().status is OK
    expect(dancers, "A5", "P6")
    assert dancers.active.connector.disconnect().status is OK
    expect(dancers, "A6", "P6")
    dancers.assert_nothing_undecided()
    delivered = [ov.call.split(".")[1] for ov in dancers.active.file.poll()]
    assert delivered == ["connect", "complete_connect", "disconnect"]
    delivered = [ov.call.split(".")[1] for ov in dancers.passive.file.poll()]
    assert delivered == ["get_connection_request", "accept", "disconnect"]


def test_a2_peer_rejects(dancers: Dancers) -> None:
    dancers.to("A2")
    dancers.passive.connector.reject(b"no room")
    assert dancers.connecting.status is REFUSED
    with pytest.raises(ConnectionRefusedError, match="refused"):
        dancers.connecting.result()
    assert dancers.active.connector.get_private_data() == b"no room"
    expect(dancers, "A0", "P6")
    assert dancers.active.qp._state == QpState.IDLE
    dancers.assert_nothing_undecided()


def test_a2_peer_releases_its_connector(dancers: Dancers) -> None:
    dancers.to("A2")
    dancers.passive.connector.close()
    assert dancers.connecting.status is REFUSED
    expect(dancers, "A0", "P6")
    dancers.assert_nothing_undecided()


@pytest.mark.parametrize("how", ["backlog", "armed and closed"])
def test_a2_listener_is_closed_before_it_hands_out(dancers: Dancers, how: str) -> None:
    dancers.connect()
    dancers.listener.close()
    assert dancers.connecting.status is REFUSED
    assert dancers.active.state is State.NEW
    dancers.assert_nothing_undecided()


def test_a2_the_process_of_the_peer_dies(dancers: Dancers) -> None:
    dancers.to("A2")
    dancers.world.broker.leave(dancers.passive.hub.client.number)
    assert dancers.connecting.status is REFUSED
    assert dancers.active.state is State.NEW


def test_a2_cancel(dancers: Dancers) -> None:
    dancers.to("A2")
    dancers.active.connector.cancel_overlapped_requests()
    assert repr(dancers.connecting).startswith("<Overlapped Connector.connect CANCELED")
    assert dancers.active.file.poll() == [dancers.connecting]
    assert dancers.active.qp._state == QpState.IDLE
    expect(dancers, "A0", "P6")
    for call in (
        lambda: dancers.passive.connector.accept(dancers.passive.qp),
        dancers.passive.connector.reject,
        dancers.passive.connector.reject,
    ):
        assert outcome(call) is ABORTED
    assert dancers.passive.connector.get_private_data() == b"the offer"
    assert dancers.passive.qp._state == QpState.IDLE
    dancers.assert_nothing_undecided()


@pytest.mark.parametrize("answer", ["accept", "reject"])
def test_p2_an_abandonment_that_the_passive_side_has_not_heard_of(
    dancers: Dancers, answer: str
) -> None:
    dancers.to("P2")
    args = [dancers.passive.qp] if answer == "accept" else []
    # The event is still on its way, but the broker's reply tells.
    dancers.world.broker.fail[answer] = ABORTED
    assert outcome(getattr(dancers.passive.connector, answer), *args) is ABORTED
    expect(dancers, "A2", "P6")
    assert dancers.passive.qp._state == QpState.IDLE
    assert outcome(getattr(dancers.passive.connector, answer), *args) is ABORTED
    dancers.active.connector.cancel_overlapped_requests()
    dancers.assert_nothing_undecided()


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
def test_a2_connector_is_released(dancers: Dancers, how: str) -> None:
    dancers.to("A2")
    release(dancers.active, "connector", how)
    assert dancers.connecting.status is CANCELED
    assert dancers.active.file.poll() == [dancers.connecting]
    assert dancers.active.qp._state == QpState.IDLE
    assert outcome(dancers.passive.connector.reject) is ABORTED
    dancers.assert_nothing_undecided()


def test_a2_queue_pair_is_dropped(dancers: Dancers) -> None:
    """The pending Connect keeps it; when that is over nothing does."""
    dancers.to("A2")
    release(dancers.active, "qp", "del")
    assert dancers.connecting.status is PENDING
    dancers.passive.connector.reject()
    assert dancers.connecting.status is REFUSED
    dancers.assert_nothing_undecided()


@pytest.mark.parametrize("looks", [True, False])
def test_a2_queue_pair_is_released(dancers: Dancers, looks: bool) -> None:
    dancers.to("A2")
    release(dancers.active, "qp", "close")
    # The peer hears of it even if this process never makes another call.
    assert outcome(dancers.passive.connector.reject) is ABORTED
    if looks:
        assert dancers.connecting.status is CANCELED
        assert dancers.active.state is State.CLOSED
    else:
        dancers.active.connector.close()
        assert dancers.connecting._seen() is CANCELED
    dancers.assert_nothing_undecided()


@pytest.mark.parametrize("rejected", [True, False])
def test_a3_reject_or_release(dancers: Dancers, rejected: bool) -> None:
    dancers.to("A3")
    if rejected:
        dancers.active.connector.reject(b"changed my mind")
    else:
        del dancers.active.connector
    assert dancers.accepting.status is REFUSED
    assert dancers.passive.state is State.CLOSED
    for end in (dancers.active, dancers.passive):
        assert end.qp._state == QpState.IDLE, "not connected, and its Receives stay posted"
    dancers.assert_nothing_undecided()


def test_a3_queue_pair_is_released(dancers: Dancers) -> None:
    dancers.to("A3")
    del dancers.active.qp
    assert dancers.accepting.status is REFUSED
    expect(dancers, "A6", "P6")
    assert outcome(dancers.active.connector.complete_connect) is INVALID
    dancers.assert_nothing_undecided()


@pytest.mark.parametrize("how", ["cancel", *RELEASES])
def test_a3_peer_gives_up(dancers: Dancers, how: str) -> None:
    dancers.to("A3")
    if how == "cancel":
        dancers.passive.connector.cancel_overlapped_requests()
    else:
        release(dancers.passive, "connector", how)
    assert dancers.accepting.status is CANCELED
    assert dancers.passive.qp._state == QpState.IDLE
    assert outcome(dancers.active.connector.complete_connect) is INVALID
    assert dancers.active.state is State.CLOSED
    dancers.assert_nothing_undecided()


@pytest.mark.parametrize("dies", ["active", "passive"])
def test_the_process_dies_between_accept_and_complete(dancers: Dancers, dies: str) -> None:
    dancers.to("A3")
    end, other = dancers.active, dancers.passive
    if dies == "active":
        end, other = other, end
    end.hub.peer_adapter(other.adapter.uid).mark_dead()
    if dies == "active":
        assert dancers.accepting.status is REFUSED
    else:
        assert outcome(end.connector.complete_connect) is INVALID
    assert end.state is State.CLOSED


def test_p3_never_times_out(dancers: Dancers) -> None:
    dancers.to("P3")
    with pytest.raises(TimeoutError, match=r"waiting for 127\.0\.0\.1:"):
        dancers.accepting.result(0)
    assert dancers.accepting.status is PENDING


def test_p3_is_connected_before_the_accept_is_looked_at(dancers: Dancers) -> None:
    dancers.to("P3")
    dancers.active.connector.complete_connect()
    assert dancers.passive.connector.disconnect().status is OK
    assert dancers.accepting._seen() is OK
    assert dancers.active.state is State.DOWN


def test_p3_cancel_after_the_peer_completed_is_too_late(dancers: Dancers) -> None:
    dancers.to("P3")
    dancers.active.connector.complete_connect()
    dancers.passive.connector.cancel_overlapped_requests()
    assert dancers.accepting._seen() is OK
    expect(dancers, "A4", "P4")


def test_p3_opened_and_disconnected_before_anybody_looks(dancers: Dancers) -> None:
    dancers.to("P3")
    dancers.active.connector.complete_connect()
    dancers.active.connector.disconnect()
    assert dancers.accepting.status is OK
    assert dancers.passive.connector.notify_disconnect().status is OK
    assert dancers.passive.connector.disconnect().status is OK
    dancers.assert_nothing_undecided()


def test_p3_queue_pair_is_released(dancers: Dancers) -> None:
    dancers.to("P3")
    dancers.passive.qp.close()
    assert dancers.accepting.status is CANCELED
    assert outcome(dancers.active.connector.complete_connect) is INVALID
    expect(dancers, "A6", "P6")
    dancers.assert_nothing_undecided()


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
def test_a4_p4_one_side_ends_it(dancers: Dancers, who: str, how: str) -> None:
    dancers.to("A4")
    one = getattr(dancers, who)
    other = dancers.passive if who == "active" else dancers.active
    here, there = one.connector.notify_disconnect(), other.connector.notify_disconnect()
    ENDINGS[how](one)
    assert (here.status, there.status) == (OK, OK)
    assert other.state is State.DOWN
    assert other.connector.notify_disconnect().status is OK
    assert other.connector.disconnect().status is OK
    if how == "fault":
        assert one.state is State.DOWN
        assert one.connector.disconnect().status is OK
    dancers.assert_nothing_undecided()


@pytest.mark.parametrize("who", ["active", "passive"])
def test_a4_p4_connector_is_dropped(dancers: Dancers, who: str) -> None:
    """The connection lasts as long as its queue pair does."""
    dancers.to("A4")
    one = getattr(dancers, who)
    other = dancers.passive if who == "active" else dancers.active
    notice = other.connector.notify_disconnect()
    release(one, "connector", "del")
    assert notice.status is PENDING
    assert one.qp._state == QpState.CONNECTED
    one.qp.close()
    assert notice.status is OK
    assert other.connector.disconnect().status is OK
    dancers.assert_nothing_undecided()


def test_a4_the_process_of_the_peer_dies(dancers: Dancers) -> None:
    dancers.to("A4")
    notice = dancers.active.connector.notify_disconnect()
    dancers.active.hub.peer_adapter(dancers.passive.adapter.uid).mark_dead()
    assert notice.status is OK
    assert dancers.active.state is State.DOWN
    assert dancers.active.connector.disconnect().status is OK


def test_both_disconnect_at_the_same_time(dancers: Dancers) -> None:
    dancers.to("A4")
    assert dancers.active.connector.disconnect().status is OK
    assert dancers.passive.connector.disconnect().status is OK
    dancers.assert_nothing_undecided()


def test_a_queue_pair_that_was_connected_cannot_be_used_again(dancers: Dancers) -> None:
    dancers.to("A6")
    fresh = dancers.active.new_connector()
    assert outcome(fresh.connect, dancers.active.qp, dancers.address) is CANCELED
    assert fresh._state is State.NEW


# -- operations that end with the connection ------------------------------------------------------


def test_notify_is_canceled_only_by_a_cancel(dancers: Dancers) -> None:
    dancers.to("A4")
    notices = [dancers.active.connector.notify_disconnect() for _ in range(3)]
    dancers.active.file.poll()
    dancers.active.connector.cancel_overlapped_requests()
    assert dancers.active.file.poll() == notices
    assert {notice.status for notice in notices} == {CANCELED}
    assert not dancers.active.connector._notifying
    last = dancers.active.connector.notify_disconnect()
    dancers.active.connector.disconnect()
    assert last.status is OK


@pytest.mark.parametrize("released", [True, False])
def test_a_disconnect_that_takes_steps(dancers: Dancers, released: bool) -> None:
    """Disconnect pending while everything is released (rule G4) ends in its own time."""
    dancers.to("A4")
    dancers.active.qp.steps_to_disconnect = 3
    pending = dancers.active.connector.disconnect()
    assert pending._seen() is PENDING
    if released:
        del dancers.active.connector
        del dancers.active.qp
    pending.result(5)
    assert dancers.active.file.poll()[-1] is pending
    dancers.passive.connector.close()
    dancers.assert_nothing_undecided()


def test_a_disconnect_cannot_be_canceled(dancers: Dancers) -> None:
    dancers.to("A4")
    dancers.active.qp.steps_to_disconnect = 1000
    pending = dancers.active.connector.disconnect()
    assert outcome(dancers.active.connector.cancel_overlapped_requests) is S.UNSUCCESSFUL
    assert pending._seen() is PENDING
    dancers.active.qp.steps_to_disconnect = 0
    assert pending.status is OK
    dancers.active.connector.cancel_overlapped_requests()


def test_a_release_without_disconnect_that_takes_steps(dancers: Dancers) -> None:
    dancers.to("A4")
    dancers.active.qp.steps_to_disconnect = 2
    dancers.active.connector.close()
    del dancers.active.qp
    notice = dancers.passive.connector.notify_disconnect()
    for _ in range(3):
        dancers.active.hub.progress()
    assert notice.status is OK
    assert not dancers.active.hub.affairs._lingering


# -- requests -------------------------------------------------------------------------------------


def test_p1_the_oldest_request_gets_the_oldest_connect(dancers: Dancers) -> None:
    connectors = [dancers.passive.new_connector() for _ in range(3)]
    waiting = [dancers.listener.get_connection_request(c) for c in connectors]
    for number in range(3):
        other = dancers.active.new_connector()
        pending = other.connect(dancers.active.new_qp(), dancers.address, 0, 0, b"%d" % number)
        assert [ov.status for ov in waiting] == [OK] * (number + 1) + [PENDING] * (2 - number)
        assert connectors[number].get_private_data() == b"%d" % number
        assert pending.status is PENDING
        connectors[number].close()
        assert pending.status is REFUSED


def test_p1_listener_cancel_frees_the_connectors_in_order(dancers: Dancers) -> None:
    connectors = [dancers.passive.new_connector() for _ in range(3)]
    waiting = [dancers.listener.get_connection_request(c) for c in connectors]
    dancers.listener.cancel_overlapped_requests()
    assert dancers.passive.file.poll() == waiting
    assert {ov.status for ov in waiting} == {CANCELED}
    again = dancers.listener.get_connection_request(connectors[1])
    dancers.connect()
    assert again.status is OK


def test_p1_cancel_meets_an_offer_on_its_way(dancers: Dancers) -> None:
    """Neither lost nor handed out twice: the request ends with the offer."""
    dancers.to("P1")
    dancers.connect()
    dancers.listener.cancel_overlapped_requests()
    assert dancers.requesting._seen() is OK
    dancers.accept()
    assert dancers.connecting.status is OK


@pytest.mark.parametrize("how", RELEASES)
def test_p1_listener_is_released(dancers: Dancers, how: str) -> None:
    dancers.to("P1")
    release(dancers, "listener", how)
    assert dancers.requesting.status is CANCELED
    assert dancers.passive.file.poll() == [dancers.requesting]
    assert dancers.passive.state is State.NEW
    dancers.listener = dancers.passive.new_listener()
    dancers.listener.bind(dancers.address)
    dancers.listener.listen()
    dancers.to("A4")


def test_p1_listener_is_released_with_an_offer_on_its_way(dancers: Dancers) -> None:
    dancers.to("P1")
    dancers.connect()
    dancers.listener.close()
    assert dancers.requesting._seen() is CANCELED
    assert dancers.passive.state is State.NEW
    assert dancers.connecting.status is REFUSED
    dancers.assert_nothing_undecided()


def test_p1_an_offer_of_a_listener_that_was_closed_is_not_taken_for_another(
    dancers: Dancers,
) -> None:
    dancers.to("P1")
    dancers.connect(b"for the first")
    dancers.listener.close()
    dancers.listener = dancers.passive.new_listener()
    dancers.listener.bind(dancers.address)
    dancers.listener.listen()
    again = dancers.request()
    assert again.status is PENDING
    assert dancers.connecting.status is REFUSED
    dancers.connect(b"for the second")
    assert again.status is OK
    assert dancers.passive.connector.get_private_data() == b"for the second"


def test_p1_connector_is_dropped(dancers: Dancers) -> None:
    """The pending GetConnectionRequest keeps it; when that is over nothing does."""
    dancers.to("P1")
    release(dancers.passive, "connector", "del")
    assert dancers.requesting.status is PENDING
    dancers.connect()
    assert dancers.requesting.status is OK
    dancers.world.progress()
    assert dancers.connecting.status is REFUSED
    dancers.assert_nothing_undecided()


@pytest.mark.parametrize("how", ["close", "with"])
@pytest.mark.parametrize("offered", [True, False])
def test_p1_connector_is_released(dancers: Dancers, how: str, offered: bool) -> None:
    dancers.to("P1")
    if offered:
        dancers.connect()
    release(dancers.passive, "connector", how)
    assert dancers.requesting.status is CANCELED
    if not offered:
        dancers.connect()
        dancers.passive.connector = dancers.passive.new_connector()
        dancers.request()
        assert dancers.requesting.status is OK
        dancers.passive.connector.close()
    dancers.world.progress()
    assert dancers.connecting.status is REFUSED
    dancers.assert_nothing_undecided()


def test_a_listener_that_is_closed_does_not_touch_what_it_handed_out(dancers: Dancers) -> None:
    dancers.to("A2")
    dancers.listener.close()
    dancers.accept()
    dancers.active.connector.complete_connect()
    assert dancers.accepting.status is OK


def test_crossed_connects(world: World) -> None:
    one, two = Dancers(world), Dancers(world)
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
    dancers = Dancers.__new__(Dancers)
    dancers.world = world
    dancers.active = End(world, "127.0.0.1")
    dancers.active.adapter.close()
    for end_name in ("active", "passive"):
        end = End.__new__(End)
        end.adapter = adapter
        end.file = dancers.active.file
        end.kept = []
        end.connector, end.qp = end.new_connector(), end.new_qp()
        end.connector._file = None
        setattr(dancers, end_name, end)
    dancers.listener = dancers.passive.new_listener()
    dancers.listener._file = None
    dancers.listener.bind(("::", 0))
    dancers.listener.listen()
    dancers.address = "127.0.0.1", dancers.listener.get_local_address()[1]
    dancers.complete()
    assert set(adapter.hub.ledger.live) == {
        (role, next(iter(adapter.hub.ledger.live))[1]) for role in ("active", "passive")
    }
    notice = dancers.passive.connector.notify_disconnect()
    dancers.active.connector.disconnect()
    assert notice.status is OK
    dancers.passive.connector.close()
    assert not world.broker.rendezvous.connections.records


# -- what connect and accept check ----------------------------------------------------------------


def test_connect_failures_that_change_nothing(dancers: Dancers) -> None:
    for prepare in (lambda: None, dancers.bind):
        prepare()
        before = dancers.active.connector._state
        end, said = dancers.active, len(dancers.world.broker.calls)
        connect = end.connector.connect
        foreign = dancers.passive.new_qp()
        most = b"x" * LIMITS.max_caller_data
        for status, args in {
            S.INVALID_PARAMETER_1: [(None, dancers.address), (foreign, dancers.address)],
            S.INVALID_PARAMETER_2: [(end.qp, None), (end.qp, ("127.0.0.1", 65536))],
            S.INVALID_PARAMETER_4: [(end.qp, dancers.address, v) for v in (-1, 2**32, "1", True)],
            S.INVALID_PARAMETER_5: [(end.qp, dancers.address, 0, v) for v in (-1, 2**32, 1.0)],
            S.INVALID_ADDRESS: [(end.qp, ("nowhere", 1))],
            S.ACCESS_VIOLATION: [(end.qp, dancers.address, 0, 0, v) for v in (None, "text", 7)],
            S.INVALID_BUFFER_SIZE: [(end.qp, dancers.address, 0, 0, most + b"x")],
            S.BAD_NETWORK_NAME: [(end.qp, ("0.0.0.0", 1)), (end.qp, ("::", 1))],
            S.HOST_UNREACHABLE: [(end.qp, ("192.0.2.1", 1)), (end.qp, ("2001:db8::1", 1))],
        }.items():
            for each in args:
                assert outcome(connect, *each) is status, each
        assert end.connector._state is before
        assert end.qp._state == QpState.IDLE
        assert len(dancers.world.broker.calls) == said
        assert not end.file.poll()
    dancers.connect(memoryview(most))
    dancers.request()
    assert dancers.passive.connector.get_private_data() == most


def test_messages_name_call_value_and_limit(dancers: Dancers) -> None:
    end = dancers.active
    with pytest.raises(ValueError, match=r"Connector\.connect: 513 bytes .* 512 \(MaxCallerData\)"):
        end.connector.connect(end.qp, dancers.address, 0, 0, bytes(513))
    with pytest.raises(OSError, match=r"Connector\.connect: 192\.0\.2\.1 is no address of this"):
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
def test_connect_where_nobody_listens(dancers: Dancers, bound: bool, port: int) -> None:
    if bound:
        dancers.bind()
    end = dancers.active
    refused = end.connector.connect(end.qp, ("127.0.0.2", port))
    assert refused._seen() is REFUSED
    assert end.file.poll() == [refused]
    assert end.state is State.NEW
    assert end.qp._state == QpState.IDLE
    dancers.assert_nothing_undecided()
    dancers.complete()


def test_connect_with_a_queue_pair_in_use(dancers: Dancers) -> None:
    dancers.to("A2")
    other = dancers.active.new_connector()
    for _ in range(2):
        assert outcome(other.connect, dancers.active.qp, dancers.address) is ACTIVE
        assert other._state is State.NEW
        dancers.accept()
        dancers.connecting.result(5)
        if dancers.passive.state is State.ACCEPTING:
            break
    assert outcome(other.connect, dancers.active.qp, dancers.address) is ACTIVE
    dancers.active.connector.complete_connect()
    assert outcome(other.connect, dancers.active.qp, dancers.address) is ACTIVE


def test_connect_and_accept_with_a_released_queue_pair(dancers: Dancers) -> None:
    released = dancers.active.new_qp()
    released.close()
    assert outcome(dancers.active.connector.connect, released, dancers.address) is CANCELED
    dancers.to("P2")
    released = dancers.passive.new_qp()
    released.close()
    assert outcome(dancers.passive.connector.accept, released) is CANCELED
    expect(dancers, "A2", "P2")


def test_accept_failures_that_change_nothing(dancers: Dancers) -> None:
    dancers.to("P2")
    end, said = dancers.passive, len(dancers.world.broker.calls)
    busy = end.new_qp()
    busy._begin_connect()
    most = b"x" * LIMITS.max_callee_data
    for status, args in {
        S.INVALID_PARAMETER_1: [(None,), (dancers.active.new_qp(),)],
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
    assert len(dancers.world.broker.calls) == said
    assert end.qp._state == QpState.IDLE
    expect(dancers, "A2", "P2")
    dancers.accept(bytearray(most))
    assert dancers.connecting.status is OK
    assert dancers.active.connector.get_private_data() == most


@pytest.mark.parametrize("what", ["create_link", "accept"])
def test_accept_that_fails_inside_changes_nothing(dancers: Dancers, what: str) -> None:
    dancers.to("P2")
    (dancers.world.broker if what == "accept" else dancers.passive.hub.data_plane).fail[what] = (
        S.INSUFFICIENT_RESOURCES
    )
    assert outcome(dancers.passive.connector.accept, dancers.passive.qp) is S.INSUFFICIENT_RESOURCES
    expect(dancers, "A2", "P2")
    assert dancers.passive.qp._state == QpState.IDLE
    assert not dancers.passive.hub.ledger.live
    dancers.accept()
    dancers.active.connector.complete_connect()
    assert dancers.accepting.status is OK


def test_connect_that_cannot_map_the_link_gives_up(dancers: Dancers) -> None:
    dancers.to("A2")
    dancers.active.hub.data_plane.fail["attach_link"] = S.INSUFFICIENT_RESOURCES
    dancers.accept()
    assert dancers.connecting.status is S.INSUFFICIENT_RESOURCES
    assert dancers.accepting.status is REFUSED
    expect(dancers, "A0", "P6")
    assert dancers.active.qp._state == dancers.passive.qp._state == QpState.IDLE
    dancers.assert_nothing_undecided()


def test_connect_that_the_broker_refuses_changes_nothing(dancers: Dancers) -> None:
    dancers.world.broker.fail["connect"] = S.INSUFFICIENT_RESOURCES
    end = dancers.active
    assert outcome(end.connector.connect, end.qp, dancers.address) is S.INSUFFICIENT_RESOURCES
    assert end.state is State.NEW
    assert end.qp._state == QpState.IDLE
    dancers.assert_nothing_undecided()
    dancers.bind()
    dancers.world.broker.fail["connect"] = S.ADDRESS_ALREADY_EXISTS
    assert outcome(end.connector.connect, end.qp, dancers.address) is S.ADDRESS_ALREADY_EXISTS
    assert end.state is State.BOUND
    dancers.complete()


@pytest.mark.parametrize("peer", ["127.0.0.2", "::1"])
def test_bound_to_one_family_there_is_no_way_to_the_other(dancers: Dancers, peer: str) -> None:
    bound = "::1" if peer == "127.0.0.2" else "0.0.0.0"
    dancers.active.connector.bind((bound, 0))
    call = dancers.active.connector.connect
    assert outcome(call, dancers.active.qp, (peer, 7)) is S.NETWORK_UNREACHABLE
    assert dancers.active.state is State.BOUND


@pytest.mark.parametrize("bound", [None, "0.0.0.0", "::", "127.0.0.9"])
def test_the_local_address_that_nobody_chose(dancers: Dancers, bound: str | None) -> None:
    if bound:
        dancers.active.connector.bind((bound, 50_001))
    dancers.offer()
    host, port = dancers.active.connector.get_local_address()
    assert host == ("127.0.0.9" if bound == "127.0.0.9" else "127.0.0.1")
    assert port == 50_001 if bound else port in range(49152, 65536)
    assert dancers.passive.connector.get_peer_address() == (host, port)
    assert dancers.passive.connector.get_local_address() == dancers.address
    assert dancers.active.connector.get_peer_address() == dancers.address


def test_ipv6_from_an_adapter_opened_with_ipv4(dancers: Dancers) -> None:
    listener = dancers.passive.new_listener()
    listener.bind(("::1", 0))
    listener.listen()
    dancers.listener, dancers.address = listener, listener.get_local_address()
    dancers.complete()
    assert dancers.active.connector.get_local_address()[0] == "::1"
    listener.close()


def test_ports_are_free_as_soon_as_their_owner_is_through(dancers: Dancers) -> None:
    for state in ("A1", "A2", "A3", "A4"):
        end = dancers.active
        end.connector, end.qp = end.new_connector(), end.new_qp()
        dancers.passive.connector, dancers.passive.qp = (
            dancers.passive.new_connector(),
            dancers.passive.new_qp(),
        )
        end.connector.bind(("127.0.0.1", 50_002))
        if state != "A1":
            dancers.to(state)
        other = end.new_connector()
        assert outcome(other.bind, ("127.0.0.1", 50_002)) is S.SHARING_VIOLATION
        assert other._state is State.NEW
        end.connector.close()
        other.bind(("127.0.0.1", 50_002))
        other.close()


def test_bind_failures_that_change_nothing(dancers: Dancers) -> None:
    bind = dancers.active.connector.bind
    assert outcome(bind, None) is S.INVALID_PARAMETER_1
    assert outcome(bind, ("127.0.0.1", -1)) is S.INVALID_PARAMETER_1
    assert outcome(bind, ("192.0.2.1", 0)) is S.INVALID_ADDRESS
    assert outcome(bind, dancers.address) is S.SHARING_VIOLATION
    dancers.world.broker.fail["bind"] = S.TOO_MANY_ADDRESSES
    assert outcome(bind, ("127.0.0.1", 0)) is S.TOO_MANY_ADDRESSES
    assert dancers.active.state is State.NEW
    dancers.bind()


# -- read limits and private data -----------------------------------------------------------------


def test_read_limits_are_negotiated_by_the_table(world: World) -> None:
    dancers = Dancers(world)
    cap = LIMITS.max_inbound_read_limit
    for a_in, a_out, p_in, p_out in (
        (5, 7, 9, 3),
        (5, 7, 6, 8),
        (0, 0, 10, 10),
        (cap + 6, cap + 6, 2**32 - 1, 2**32 - 1),
        (1, 0, 0, 1),
    ):
        active, passive = dancers.active, dancers.passive
        active.connector, active.qp = active.new_connector(), active.new_qp()
        passive.connector, passive.qp = passive.new_connector(), passive.new_qp()
        dancers.connecting = active.connector.connect(active.qp, dancers.address, a_in, a_out)
        dancers.request().result(5)
        assert passive.connector.get_read_limits() == (min(a_out, cap), min(a_in, cap))
        passive.connector.accept(passive.qp, p_in, p_out)
        dancers.connecting.result(5)
        agreed_in, agreed_out = min(p_in, cap, a_out), min(p_out, cap, a_in)
        assert passive.connector.get_read_limits() == (agreed_in, agreed_out)
        assert passive.qp.attached_limits == (agreed_in, agreed_out)
        assert active.connector.get_read_limits() == (agreed_out, agreed_in)
        assert active.qp.attached_limits == (agreed_out, agreed_in)
        active.connector.complete_connect()
        assert active.connector.get_read_limits() == (agreed_out, agreed_in)
        active.connector.close()
        passive.connector.close()


def test_private_data_into_a_buffer(dancers: Dancers) -> None:
    dancers.to("P2")
    connector = dancers.passive.connector
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
        dancers.active.connector.get_private_data_into(room)


def test_no_private_data_is_no_bytes(dancers: Dancers) -> None:
    dancers.connect(b"")
    dancers.request()
    assert dancers.passive.connector.get_private_data() == b""
    assert dancers.passive.connector.get_private_data_into(None) == 0
    dancers.passive.connector.reject()
    assert dancers.connecting.status is REFUSED
    assert dancers.active.connector.get_private_data() == b""


def test_private_data_of_an_earlier_attempt_is_forgotten(dancers: Dancers) -> None:
    dancers.to("A2")
    dancers.passive.connector.reject(b"go away")
    dancers.connecting.done()
    dancers.passive.connector = dancers.passive.new_connector()
    dancers.offer()
    assert outcome(dancers.active.connector.get_private_data) is INVALID


def test_addresses_into_a_buffer(dancers: Dancers) -> None:
    dancers.to("P2")
    for into in (
        dancers.passive.connector.get_local_address_into,
        dancers.passive.connector.get_peer_address_into,
        dancers.listener.get_local_address_into,
    ):
        short = bytearray(15)
        with pytest.raises(NdError) as caught:
            into(short)
        assert (caught.value.status, caught.value.required) == (S.BUFFER_OVERFLOW, 16)
        assert short == bytes(15)
        assert into(bytearray(16)) == 16


def test_limits_that_make_no_sense_count_as_none(dancers: Dancers) -> None:
    from shmnd.handshake.attempt import ReadLimits, Terms, private_of

    for nonsense in (None, 7, [1], [1, 2, 3], [-1, 0], ["1", "2"], [2**40, 1], [True, False]):
        assert ReadLimits.told(nonsense) == (0, 0)
    assert Terms.read({}) == Terms(ReadLimits(0, 0), {})
    assert Terms.read({"qp": 7, "limits": [1, 2]}).qp == {}
    assert private_of({"private": "!"}) == b""


# -- the listener ---------------------------------------------------------------------------------


def test_listener_states(dancers: Dancers) -> None:
    fresh = dancers.passive.new_listener()
    connector = dancers.passive.new_connector()
    state = S.INVALID_DEVICE_STATE
    for call in (fresh.listen, fresh.get_local_address, fresh.get_local_address):
        assert outcome(call) is state
    assert outcome(fresh.get_connection_request, connector) is state
    assert outcome(fresh.bind, dancers.address) is S.SHARING_VIOLATION
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
    for wrong in (None, dancers.passive.qp, dancers.active.new_connector()):
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
    dancers: Dancers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmnd.listener._CERTAINLY_TAKEN", 0)
    dancers.world.broker.fail["request"] = S.INSUFFICIENT_RESOURCES
    call = dancers.listener.get_connection_request
    assert outcome(call, dancers.passive.connector) is S.INSUFFICIENT_RESOURCES
    assert not dancers.passive.file.poll()
    dancers.listener.cancel_overlapped_requests()
    dancers.complete()


def test_the_backlog_is_bounded(dancers: Dancers) -> None:
    listener = dancers.passive.new_listener()
    listener.bind(("127.0.0.2", 0))
    listener.listen(2)
    address = listener.get_local_address()
    makers = [dancers.active.new_connector() for _ in range(3)]
    qps = [dancers.active.new_qp() for _ in makers]
    pending = [m.connect(qp, address) for m, qp in zip(makers, qps, strict=True)]
    assert [ov.status for ov in pending] == [PENDING, PENDING, REFUSED]
    listener.close()
    assert [ov.status for ov in pending] == [REFUSED] * 3


# -- when the adapter is closed -------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_release_after_the_adapter_and_its_hub_are_gone(dancers: Dancers, state: str) -> None:
    """Any order of release: nothing raises, and operations end."""
    dancers.to(state)
    end = dancers.side(state)
    end.adapter.close()
    assert outcome(end.connector.get_read_limits) is S.DEVICE_REMOVED
    assert outcome(end.connector.cancel_overlapped_requests) is S.DEVICE_REMOVED
    end.connector.close()
    end.qp.close()
    assert not end.connector._pending
    end.file.close()


@pytest.mark.parametrize("state", STATES)
def test_every_call_of_a_closed_adapter_is_device_removed(dancers: Dancers, state: str) -> None:
    dancers.to(state)
    end = dancers.side(state)
    end.adapter.open = False
    for name, call in CALLS.items():
        if name not in ("get_connection_request", "cancel_overlapped_requests"):
            assert call(dancers, end) is S.DEVICE_REMOVED, name
    for other in (
        lambda: dancers.listener.bind(("127.0.0.1", 0)),
        dancers.listener.listen,
        dancers.listener.get_local_address,
        lambda: dancers.listener.get_connection_request(end.connector),
    ):
        if end is dancers.passive:
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
def test_the_broker_dies_in_every_state(dancers: Dancers, state: str) -> None:
    dancers.to(state)
    end = dancers.side(state)
    dancers.world.broker.die()
    dancers.world.progress()
    dancers.world.progress()
    assert end.state is STATES[AFTER_THE_BROKER[state]]
    if state in ("A2", "P2"):
        assert dancers.connecting.status is REFUSED
        assert dancers.active.qp._state == QpState.IDLE
        assert outcome(dancers.passive.connector.accept, dancers.passive.qp) is ABORTED
    elif state in ("A3", "P3"):
        dancers.active.connector.complete_connect()
        assert dancers.accepting.status is OK
    elif state == "P1":
        dancers.connect()
        assert dancers.requesting.status is OK
    if state in ("A3", "P3", "A4", "P4"):
        notice = dancers.passive.connector.notify_disconnect()
        assert dancers.active.connector.disconnect().status is OK
        assert notice.status is OK
    dancers.active.connector.close()
    dancers.passive.connector.close()
    dancers.active.hub.sync()
    dancers.assert_nothing_undecided()


def test_a_listener_is_found_again_after_the_broker_died(dancers: Dancers) -> None:
    dancers.world.broker.die()
    dancers.passive.hub.progress()
    assert dancers.listener.get_local_address() == dancers.address
    dancers.complete()


def test_a_new_broker_knows_the_ports_of_live_connections(dancers: Dancers) -> None:
    dancers.to("A4")
    taken = dancers.active.connector.get_local_address()
    dancers.world.broker.die()
    dancers.active.hub.sync()
    dancers.passive.hub.sync()
    other = dancers.passive.new_connector()
    assert outcome(other.bind, taken) is S.SHARING_VIOLATION
    assert len(dancers.world.broker.rendezvous.connections.records) == 1
    dancers.active.connector.close()
    other.bind(taken)
    dancers.passive.connector.close()
    assert not dancers.world.broker.rendezvous.connections.records


@pytest.mark.parametrize("kind", ["listener", "connector"])
def test_a_port_that_another_process_took_while_there_was_no_broker(
    dancers: Dancers, kind: str
) -> None:
    if kind == "listener":
        waiting, address = dancers.request(), dancers.address
        victim = dancers.passive
    else:
        dancers.bind()
        victim = dancers.active
        assert victim.connector._port is not None
        address = victim.connector._port.address
    dancers.world.broker.die()
    thief = End(dancers.world, "127.0.0.1")
    thief.connector.bind(address)
    victim.hub.sync()
    victim.hub.progress()
    if kind == "listener":
        assert waiting.status is CANCELED
        assert outcome(dancers.listener.get_local_address) is S.INVALID_DEVICE_STATE
        assert victim.connector._state is State.NEW
    else:
        assert victim.state is State.NEW
    thief.connector.close()


def test_an_accept_whose_answer_the_old_broker_took_along(dancers: Dancers) -> None:
    """The passive side accepts at a broker that never heard of the offer."""
    dancers.to("P2")
    dancers.world.broker.die()
    assert outcome(dancers.passive.connector.accept, dancers.passive.qp) is ABORTED
    assert dancers.passive.qp._state == QpState.IDLE
    assert dancers.passive.state is State.CLOSED
    assert dancers.connecting.status is REFUSED
