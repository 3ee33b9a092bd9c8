# SPDX-License-Identifier: Apache-2.0
"""A broker that dies, in every state of a connector."""

import pytest

from shmnd.handshake.attempt import State
from shmnd.handshake.queue_pair_link import QpState
from unit.handshake.connector_kit import ABORTED, CANCELED, OK, REFUSED, S
from unit.sides import STATES, End, Sides, outcome

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


def test_an_accept_whose_answer_was_lost_with_the_old_broker(sides: Sides) -> None:
    """The passive side accepts at a broker that never heard of the offer."""
    sides.to("P2")
    sides.world.broker.die()
    assert outcome(sides.passive.connector.accept, sides.passive.qp) is ABORTED
    assert sides.passive.qp._state == QpState.IDLE
    assert sides.passive.state is State.CLOSED
    assert sides.connecting.status is REFUSED
