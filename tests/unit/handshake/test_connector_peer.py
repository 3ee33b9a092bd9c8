# SPDX-License-Identifier: Apache-2.0
"""What the peer, the broker and the owner of the queue pair do to a connector."""

from collections.abc import Callable
from typing import Any

import pytest

from shmnd.handshake.attempt import State
from shmnd.handshake.queue_pair_link import QpState
from shmnd.status import NdError
from unit.handshake.connector_kit import (
    ABORTED,
    CANCELED,
    INVALID,
    OK,
    PENDING,
    REFUSED,
    RELEASES,
    S,
    expect,
    heard,
    release,
)
from unit.sides import End, Sides, outcome


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


ENDS: list[tuple[str, str, Callable[[Sides], object], str]] = [
    ("P2", "passive", lambda sides: sides.passive.connector.reject(), "has rejected its peer"),
    ("A3", "active", lambda sides: sides.active.connector.reject(), "has rejected its peer"),
    ("A4", "active", lambda sides: sides.active.connector.disconnect(), "has disconnected"),
    ("A4", "active", lambda sides: sides.active.connector.close(), "is closed"),
    (
        "P2",
        "passive",
        lambda sides: sides.active.connector.close(),
        "ended with its request, which",
    ),
    (
        "P3",
        "passive",
        lambda sides: sides.active.connector.reject(),
        "ended with its Accept, which",
    ),
    (
        "A3",
        "active",
        lambda sides: sides.passive.connector.close(),
        "ended with its Connect, whose",
    ),
    ("A3", "active", lambda sides: delattr(sides.active, "qp"), "ended with its queue pair, which"),
]


@pytest.mark.parametrize(("state", "side", "end", "how"), ENDS)
def test_the_next_call_says_how_a_connector_ended(
    sides: Sides, state: str, side: str, end: Callable[[Sides], object], how: str
) -> None:
    """Only one that the program has closed is called closed."""
    sides.to(state)
    end(sides)
    heard(sides)
    ended: End = getattr(sides, side)
    assert ended.state is State.CLOSED
    with pytest.raises(NdError, match=f"disconnect: the connector {how}.*; make a new one") as err:
        ended.connector.disconnect()
    assert err.value.status is INVALID


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
def test_p2_an_abandonment_that_the_passive_side_has_not_received(
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
def test_a3_peer_withdraws(sides: Sides, how: str) -> None:
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


def test_p3_is_connected_before_the_accept_is_polled(sides: Sides) -> None:
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


def test_p3_opened_and_disconnected_before_a_poll(sides: Sides) -> None:
    sides.to("P3")
    sides.active.connector.complete_connect()
    sides.active.connector.disconnect()
    assert sides.accepting.status is OK
    assert sides.passive.connector.notify_disconnect().status is OK
    assert sides.passive.connector.disconnect().status is OK
    sides.assert_nothing_undecided()


def test_p3_opened_and_disconnected_while_the_passive_side_polls(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its progress, which finds nothing, and its reading of the peer's state."""
    sides.to("P3")
    qp = sides.passive.qp
    progress = qp._progress

    def late_peer() -> None:
        progress()
        monkeypatch.undo()
        sides.active.connector.complete_connect()
        sides.active.connector.disconnect()

    monkeypatch.setattr(qp, "_progress", late_peer)
    sides.passive.connector._poll_link()
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
    assert not sides.active.engine.pending_operations._unfinished
