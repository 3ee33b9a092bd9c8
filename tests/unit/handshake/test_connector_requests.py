# SPDX-License-Identifier: Apache-2.0
"""Requests, and the listeners that hand them out."""

import pytest

from shmnd.handshake.attempt import State
from shmnd.status import NdError
from unit.fakes import World
from unit.handshake.connector_kit import (
    ASSOCIATED,
    CANCELED,
    OK,
    PARAMETER_1,
    PENDING,
    REFUSED,
    RELEASES,
    S,
    release,
)
from unit.sides import End, Sides, outcome


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


def test_a_closed_listener_does_not_affect_delivered_requests(sides: Sides) -> None:
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
    with pytest.raises(NdError, match=r"the backlog of .* is full \(2 requests\) \[CONN"):
        pending[2].result(0)
    listener.close()
    assert [ov.status for ov in pending] == [REFUSED] * 3
