# SPDX-License-Identifier: Apache-2.0
"""The state tables of connections, cell by cell: late, repeated, crossed and abandoned calls.

A row names the state, the call or event, how it ends, and the state afterwards. That state is
shown by continuing from it: a connector that is still in A1 to A4 finishes the handshake and
exchanges messages, one in A0 connects again, one in A5 can be disconnected, one in A6 is good for
nothing.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from shmnd import NdError, RequestType, Status
from spi.harness import UNSERVED, WAIT, End, final, outcome, statuses
from spi.pair import Pair

Action = Callable[[Pair], Status]


# Calls and events. Each returns the status that the call ends with.


def bind_again(pair: Pair) -> Status:
    return outcome(pair.active.connector.bind, (pair.active.host, 0))


def connect_again(pair: Pair) -> Status:
    return outcome(pair.active.connector.connect, pair.active.qp, pair.address)


def connect_with_too_much(pair: Pair) -> Status:
    data = b"x" * (pair.active.info.max_caller_data + 1)
    return outcome(pair.active.connector.connect, pair.active.qp, pair.address, 0, 0, data)


def connect_to_every_address(pair: Pair) -> Status:
    return outcome(pair.active.connector.connect, pair.active.qp, ("0.0.0.0", pair.address[1]))


def connect_to_an_unserved_address(pair: Pair) -> Status:
    return outcome(pair.active.connector.connect, pair.active.qp, (UNSERVED, 50000))


def connect_without_a_listener(pair: Pair) -> Status:
    return outcome(pair.active.connector.connect, pair.active.qp, ("127.0.0.5", 50000))


def complete_connect(pair: Pair) -> Status:
    return outcome(pair.active.connector.complete_connect)


def reject(pair: Pair) -> Status:
    return outcome(pair.active.connector.reject)


def disconnect(pair: Pair) -> Status:
    return outcome(pair.active.connector.disconnect)


def notify_disconnect(pair: Pair) -> Status:
    return outcome(pair.active.connector.notify_disconnect)


def send(pair: Pair) -> Status:
    return outcome(pair.active.qp.send, None, "sent by the table")


def receive(pair: Pair) -> Status:
    return outcome(pair.active.qp.receive, None, "posted by the table")


def cancel(pair: Pair) -> Status:
    pair.active.connector.cancel_overlapped_requests()
    return final(pair.connecting)


def close_connector(pair: Pair) -> Status:
    pair.active.connector.close()
    return final(pair.connecting)


def close_queue_pair(pair: Pair) -> Status:
    pair.active.qp.close()
    return final(pair.connecting)


def peer_accepts(pair: Pair) -> Status:
    pair.accept()
    return final(pair.connecting)


def peer_rejects(pair: Pair) -> Status:
    pair.passive.connector.reject()
    return final(pair.connecting)


def peer_closes_connector(pair: Pair) -> Status:
    pair.passive.connector.close()
    return final(pair.connecting)


def peer_closes_queue_pair(pair: Pair) -> Status:
    notice = pair.active.connector.notify_disconnect()
    pair.passive.qp.close()
    return pair.settle(notice, pair.active)


def peer_disconnects(pair: Pair) -> Status:
    notice = pair.active.connector.notify_disconnect()
    pair.passive.connector.disconnect().result(timeout=WAIT)
    return final(notice)


def peer_faults(pair: Pair) -> Status:
    notice = pair.active.connector.notify_disconnect()
    pair.passive.qp.send(pair.passive.garbage_sge())
    assert statuses(pair.reap(pair.passive)) == [Status.ACCESS_VIOLATION]
    return pair.settle(notice, pair.active)


def own_fault(pair: Pair) -> Status:
    notice = pair.active.connector.notify_disconnect()
    pair.active.qp.send(pair.active.garbage_sge())
    assert statuses(pair.reap(pair.active)) == [Status.ACCESS_VIOLATION]
    return pair.settle(notice, pair.active)


# How a state shows.


def continues_from_a0(pair: Pair) -> None:
    """Bind and the whole handshake, with the same connector and queue pair."""
    pair.passive.forget("connector")
    pair.bind()
    pair.connect()
    pair.exchange()


def continues_from_a1(pair: Pair) -> None:
    assert bind_again(pair) == Status.ADDRESS_ALREADY_ASSOCIATED
    pair.connect()
    pair.exchange()


def continues_from_a2(pair: Pair) -> None:
    pair.accept()
    pair.complete()
    pair.exchange()


def continues_from_a3(pair: Pair) -> None:
    pair.complete()
    pair.exchange()


def continues_from_a4(pair: Pair) -> None:
    pair.exchange()
    assert disconnect(pair) == Status.SUCCESS


def continues_from_a5(pair: Pair) -> None:
    pair.active.leftover()
    pair.active.qp.send(None, "dead")
    pair.active.qp.receive(None, "dead")
    completions = pair.active.reap(2)
    assert statuses(completions) == [Status.CANCELED] * 2
    assert {c.request_type for c in completions} == {RequestType.SEND, RequestType.RECEIVE}
    assert notify_disconnect(pair) == Status.SUCCESS
    assert disconnect(pair) == Status.SUCCESS
    continues_from_a6(pair)


def continues_from_a6(pair: Pair) -> None:
    assert disconnect(pair) == Status.CONNECTION_INVALID
    assert complete_connect(pair) == Status.CONNECTION_INVALID
    assert send(pair) == Status.CONNECTION_INVALID
    assert connect_again(pair) != Status.SUCCESS


CONTINUES: dict[str, Callable[[Pair], None]] = {
    "A0": continues_from_a0,
    "A1": continues_from_a1,
    "A2": continues_from_a2,
    "A3": continues_from_a3,
    "A4": continues_from_a4,
    "A5": continues_from_a5,
    "A6": continues_from_a6,
}


class Row(NamedTuple):
    state: str
    action: Callable[[Pair], Status]
    status: Status
    then: str

    def __str__(self) -> str:
        return f"{self.state}-{self.action.__name__}-{self.status.name}-{self.then}"


S = Status
ACTIVE = [
    Row("A0", connect_with_too_much, S.INVALID_BUFFER_SIZE, "A0"),
    Row("A1", connect_with_too_much, S.INVALID_BUFFER_SIZE, "A1"),
    Row("A0", connect_to_every_address, S.BAD_NETWORK_NAME, "A0"),
    Row("A1", connect_to_every_address, S.BAD_NETWORK_NAME, "A1"),
    Row("A0", connect_to_an_unserved_address, S.HOST_UNREACHABLE, "A0"),
    Row("A0", connect_without_a_listener, S.CONNECTION_REFUSED, "A0"),
    Row("A1", connect_without_a_listener, S.CONNECTION_REFUSED, "A0"),
    Row("A1", bind_again, S.ADDRESS_ALREADY_ASSOCIATED, "A1"),
    Row("A2", bind_again, S.ADDRESS_ALREADY_ASSOCIATED, "A2"),
    Row("A3", bind_again, S.ADDRESS_ALREADY_ASSOCIATED, "A3"),
    Row("A4", bind_again, S.ADDRESS_ALREADY_ASSOCIATED, "A4"),
    Row("A2", connect_again, S.CONNECTION_ACTIVE, "A2"),
    Row("A3", connect_again, S.CONNECTION_ACTIVE, "A3"),
    Row("A4", connect_again, S.CONNECTION_ACTIVE, "A4"),
    Row("A2", peer_accepts, S.SUCCESS, "A3"),
    Row("A2", peer_rejects, S.CONNECTION_REFUSED, "A0"),
    Row("A2", peer_closes_connector, S.CONNECTION_REFUSED, "A0"),
    Row("A2", cancel, S.CANCELED, "A0"),
    Row("A2", close_connector, S.CANCELED, "closed"),
    Row("A2", close_queue_pair, S.CANCELED, "closed"),
    Row("A3", complete_connect, S.SUCCESS, "A4"),
    Row("A3", reject, S.SUCCESS, "A6"),
    Row("A4", disconnect, S.SUCCESS, "A6"),
    Row("A4", peer_disconnects, S.SUCCESS, "A5"),
    Row("A4", peer_closes_queue_pair, S.SUCCESS, "A5"),
    Row("A4", peer_faults, S.SUCCESS, "A5"),
    Row("A4", own_fault, S.SUCCESS, "A5"),
    Row("A5", disconnect, S.SUCCESS, "A6"),
    Row("A5", notify_disconnect, S.SUCCESS, "A5"),
    Row("A6", disconnect, S.CONNECTION_INVALID, "A6"),
    *[
        Row(state, call, S.CONNECTION_INVALID, state)
        for state in ("A0", "A1", "A2")
        for call in (complete_connect, disconnect, notify_disconnect, send)
    ],
    *[
        Row("A3", call, S.CONNECTION_INVALID, "A3")
        for call in (disconnect, notify_disconnect, send)
    ],
    *[Row("A4", call, S.CONNECTION_INVALID, "A4") for call in (complete_connect,)],
    *[Row("A6", call, S.CONNECTION_INVALID, "A6") for call in (complete_connect, send)],
]


@pytest.mark.parametrize("row", ACTIVE, ids=str)
def test_active_connector(pair: Pair, row: Row) -> None:
    pair.to(row.state)
    assert row.action(pair) == row.status
    if row.then == "closed":
        with pytest.raises(NdError):
            pair.active.connector.connect(pair.active.qp, pair.address).result(timeout=WAIT)
    else:
        CONTINUES[row.then](pair)


@pytest.mark.parametrize("state", ["A0", "A1", "A2", "A3", "A4"])
def test_active_receive_is_posted_in_every_state_and_kept(pair: Pair, state: str) -> None:
    pair.to(state)
    assert receive(pair) == Status.SUCCESS
    if state == "A0":
        pair.connect()
    elif state != "A4":
        for step in (pair.offer, pair.accept, pair.complete)[int(state[1]) - 1 :]:
            step()
    pair.passive.qp.send(None)
    assert [c.request_context for c in pair.reap(pair.active)] == ["posted by the table"]


def test_active_bind_fails_and_may_be_repeated(pair: Pair) -> None:
    pair.listen()
    status = outcome(pair.active.connector.bind, pair.address)
    assert status == Status.SHARING_VIOLATION
    pair.bind()
    pair.connect()
    pair.exchange()


@pytest.mark.parametrize("state", ["A0", "A1"])
def test_active_connect_with_a_queue_pair_in_use_changes_nothing(pair: Pair, state: str) -> None:
    pair.to(state)
    busy, qp = pair.active.new_connector(), pair.active.new_qp()
    busy.connect(qp, pair.address)
    with_used = outcome(pair.active.connector.connect, qp, pair.address)
    assert with_used == Status.CONNECTION_ACTIVE
    with contextlib.closing(pair.passive.new_connector()) as partner:
        pair.passive.listener.get_connection_request(partner).result(timeout=WAIT)
        partner.reject()
    CONTINUES[state](pair)


def test_active_connect_retries_after_a_cancel_with_a_new_bind(pair: Pair) -> None:
    """A port of one's own and the queue pair survive as many attempts as it takes."""
    pair.listen()
    for _ in range(5):
        pair.active.connector.bind((pair.active.host, 50400))
        pair.request()
        pair.offered()
        assert cancel(pair) == Status.CANCELED
        pair.passive.forget("connector")
    pair.connect()
    pair.exchange()


@pytest.mark.parametrize("cancelled", ["connect", "accept", "notify_disconnect"])
def test_any_state_cancel_ends_pending_operations(pair: Pair, cancelled: str) -> None:
    if cancelled == "connect":
        pair.to("A2")
        end, pending = pair.active, pair.connecting
    elif cancelled == "accept":
        pair.to("A3")
        end, pending = pair.passive, pair.accepting
    else:
        pair.to("A4")
        end = pair.passive
        pending = end.connector.notify_disconnect()
    end.connector.cancel_overlapped_requests()
    assert pending.done()
    assert final(pending) == Status.CANCELED


# The passive side


def asked(call: Callable[[], Any]) -> Status:
    """The status of a call that returns a value."""

    def ask() -> None:
        call()

    return outcome(ask)


def p_private_data(pair: Pair) -> Status:
    return asked(pair.passive.connector.get_private_data)


def p_read_limits(pair: Pair) -> Status:
    return asked(pair.passive.connector.get_read_limits)


def p_local_address(pair: Pair) -> Status:
    return asked(pair.passive.connector.get_local_address)


def p_peer_address(pair: Pair) -> Status:
    return asked(pair.passive.connector.get_peer_address)


def p_accept_with_too_much(pair: Pair) -> Status:
    data = b"x" * (pair.passive.info.max_callee_data + 1)
    return outcome(pair.passive.connector.accept, pair.passive.qp, 0, 0, data)


def p_reject_with_too_much(pair: Pair) -> Status:
    data = b"x" * (pair.passive.info.max_callee_data + 1)
    return outcome(pair.passive.connector.reject, data)


def p_accept(pair: Pair) -> Status:
    return outcome(pair.passive.connector.accept, pair.passive.qp)


def p_reject(pair: Pair) -> Status:
    return outcome(pair.passive.connector.reject)


def p_complete_connect(pair: Pair) -> Status:
    return outcome(pair.passive.connector.complete_connect)


def p_disconnect(pair: Pair) -> Status:
    return outcome(pair.passive.connector.disconnect)


def p_notify_disconnect(pair: Pair) -> Status:
    return outcome(pair.passive.connector.notify_disconnect)


def p_send(pair: Pair) -> Status:
    return outcome(pair.passive.qp.send, None)


def p_abandoned(pair: Pair) -> Status:
    assert cancel(pair) == Status.CANCELED
    return p_accept(pair)


def p_abandoned_and_rejected(pair: Pair) -> Status:
    assert cancel(pair) == Status.CANCELED
    return p_reject(pair)


def p_peer_completes(pair: Pair) -> Status:
    pair.complete()
    return final(pair.accepting)


def p_peer_rejects(pair: Pair) -> Status:
    pair.active.connector.reject()
    return final(pair.accepting)


def p_peer_closes_connector(pair: Pair) -> Status:
    pair.active.connector.close()
    return final(pair.accepting)


def p_peer_closes_queue_pair(pair: Pair) -> Status:
    pair.active.qp.close()
    return final(pair.accepting)


def p_cancel(pair: Pair) -> Status:
    pair.passive.connector.cancel_overlapped_requests()
    return final(pair.accepting)


def p_peer_disconnects(pair: Pair) -> Status:
    notice = pair.passive.connector.notify_disconnect()
    pair.active.connector.disconnect().result(timeout=WAIT)
    return final(notice)


def passive_is_down(pair: Pair) -> None:
    pair.passive.leftover()
    pair.passive.qp.send(None, "dead")
    pair.passive.qp.receive(None, "dead")
    assert statuses(pair.passive.reap(2)) == [Status.CANCELED] * 2
    assert p_notify_disconnect(pair) == Status.SUCCESS
    assert p_disconnect(pair) == Status.SUCCESS
    passive_is_closed(pair)


def passive_is_closed(pair: Pair) -> None:
    for call in (p_accept, p_disconnect, p_complete_connect):
        assert call(pair) != Status.SUCCESS
    assert p_send(pair) == Status.CONNECTION_INVALID


PASSIVE_CONTINUES: dict[str, Callable[[Pair], None]] = {
    "P0": lambda pair: pair.connect().exchange(),
    "P2": continues_from_a2,
    "P3": continues_from_a3,
    "P4": continues_from_a4,
    "P5": passive_is_down,
    "P6": passive_is_closed,
}

PASSIVE = [
    Row("P2", p_read_limits, S.SUCCESS, "P2"),
    Row("P2", p_private_data, S.SUCCESS, "P2"),
    Row("P2", p_local_address, S.SUCCESS, "P2"),
    Row("P2", p_peer_address, S.SUCCESS, "P2"),
    Row("P2", p_accept_with_too_much, S.INVALID_BUFFER_SIZE, "P2"),
    Row("P2", p_reject_with_too_much, S.INVALID_BUFFER_SIZE, "P2"),
    Row("P2", p_reject, S.SUCCESS, "P6"),
    Row("P2", p_abandoned, S.CONNECTION_ABORTED, "P6"),
    Row("P2", p_abandoned_and_rejected, S.CONNECTION_ABORTED, "P6"),
    Row("P3", p_peer_completes, S.SUCCESS, "P4"),
    Row("P3", p_peer_rejects, S.CONNECTION_REFUSED, "P6"),
    Row("P3", p_peer_closes_connector, S.CONNECTION_REFUSED, "P6"),
    Row("P3", p_peer_closes_queue_pair, S.CONNECTION_REFUSED, "P6"),
    Row("P3", p_cancel, S.CANCELED, "P6"),
    Row("P4", p_disconnect, S.SUCCESS, "P6"),
    Row("P4", p_peer_disconnects, S.SUCCESS, "P5"),
    Row("P5", p_disconnect, S.SUCCESS, "P6"),
    Row("P5", p_notify_disconnect, S.SUCCESS, "P5"),
    Row("P6", p_disconnect, S.CONNECTION_INVALID, "P6"),
    *[
        Row(state, call, S.CONNECTION_INVALID, state)
        for state in ("P0", "P2", "P3")
        for call in (p_complete_connect, p_disconnect, p_notify_disconnect, p_send)
    ],
    *[
        Row("P0", call, S.CONNECTION_INVALID, "P0")
        for call in (p_private_data, p_read_limits, p_local_address, p_peer_address)
    ],
]


@pytest.mark.parametrize("row", PASSIVE, ids=str)
def test_passive_connector(pair: Pair, row: Row) -> None:
    pair.to_passive(row.state)
    assert row.action(pair) == row.status
    PASSIVE_CONTINUES[row.then](pair)


@pytest.mark.parametrize("state", ["P2", "P3", "P4"])
def test_passive_accept_again(pair: Pair, state: str) -> None:
    pair.to_passive(state)
    if state == "P2":
        pair.accept()
    assert p_accept(pair) in (Status.CONNECTION_ACTIVE, Status.CONNECTION_INVALID)
    PASSIVE_CONTINUES["P3" if state == "P2" else state](pair)


def test_passive_release_while_offered_refuses_the_peer(pair: Pair) -> None:
    pair.to_passive("P2")
    pair.passive.drop("connector")
    assert final(pair.connecting) == Status.CONNECTION_REFUSED
    pair.connect()
    pair.exchange()


@pytest.mark.parametrize("who", ["active", "passive"])
def test_release_without_disconnect_ends_the_connection(connected: Pair, who: str) -> None:
    leaver = getattr(connected, who)
    other = connected.other(leaver)
    notice = other.connector.notify_disconnect()
    other.qp.receive(None, "in vain")
    leaver.close()
    assert final(notice) == Status.SUCCESS
    assert statuses(other.reap()) == [Status.CANCELED]
    assert final(other.connector.disconnect()) == Status.SUCCESS


def test_crossed_connects_and_their_answers(pair: Pair) -> None:
    """Both ends listen and connect to each other at the same time, as the ranks of a mesh do."""
    pair.listen()
    back = pair.active.listen()
    answering = {
        "active": (pair.active.new_connector(), pair.active.new_qp()),
        "passive": (pair.passive.connector, pair.passive.qp),
    }
    far, far_qp = pair.passive.new_connector(), pair.passive.new_qp()
    there = pair.active.connector.connect(pair.active.qp, pair.address)
    here = far.connect(far_qp, back)
    pair.passive.listener.get_connection_request(answering["passive"][0]).result(timeout=WAIT)
    pair.active.listener.get_connection_request(answering["active"][0]).result(timeout=WAIT)
    pair.accepting = answering["passive"][0].accept(answering["passive"][1])
    answering["active"][0].reject()
    assert final(there) == Status.SUCCESS
    assert final(here) == Status.CONNECTION_REFUSED
    pair.complete()
    pair.exchange()


# The listener


def test_listener_second_bind_and_second_listen(end: End) -> None:
    address = end.listen()
    assert outcome(end.listener.bind, address) == Status.ADDRESS_ALREADY_ASSOCIATED
    assert outcome(end.listener.listen, 0) == Status.INVALID_DEVICE_STATE
    assert end.listener.get_local_address() == address


def test_listener_of_another_object_on_the_same_address(pair: Pair) -> None:
    pair.listen()
    assert outcome(pair.active.listener.bind, pair.address) == Status.SHARING_VIOLATION
    again = pair.passive.adapter.create_listener()
    assert outcome(again.bind, pair.address) == Status.SHARING_VIOLATION
    pair.passive.listener.close()
    again.bind(pair.address)
