# SPDX-License-Identifier: Apache-2.0
"""A broker is gone; the next one hears from each process what it holds."""

import errno
import os
from typing import Any

import pytest

from shmnd.broker.service.records import Limits
from shmnd.status import Status
from unit.broker.world import Party, World, connected

ACTIVE = ["127.0.0.1", 50000]
PASSIVE = ["127.0.0.1", 5000]
NUMBER = 2**40


def back(world: World, party: Party) -> Party:
    """Return a process as it comes to a new broker, with its adapter declared again."""
    again = world.party(key=party.key, holds=True, adapter=False)
    again.adapter_key, again.adapter = party.adapter_key, party.adapter
    again.ask("adapter", key=party.adapter_key, table={"of": party.uid})
    return again


def held(party: Party, peer: Party, role: str, number: int = NUMBER, **more: Any) -> dict[str, Any]:
    local, remote = (ACTIVE, PASSIVE) if role == "active" else (PASSIVE, ACTIVE)
    return {
        "connection": number,
        "adapter": party.adapter,
        "peer_adapter": peer.adapter,
        "local": local,
        "peer": remote,
        "role": role,
        **more,
    }


def holds(party: Party, *entries: dict[str, Any], done: bool = True) -> list[Any]:
    reply = party.ask("holds", connections=list(entries), done=done)
    assert isinstance(reply["refused"], list)
    return reply["refused"]


@pytest.fixture
def old() -> tuple[Party, Party]:
    """An active and a passive party of a broker that is no more."""
    active, passive, _ = connected(World())
    return active, passive


@pytest.mark.parametrize("first", ["active", "passive"])
def test_both_ends_meet_again(old: tuple[Party, Party], first: str) -> None:
    world = World()
    active, passive = (back(world, party) for party in old)
    active.segment(1)
    ends = [(active, passive, "active"), (passive, active, "passive")]
    for party, peer, role in ends if first == "active" else ends[::-1]:
        assert holds(party, held(party, peer, role)) == []
    assert active.names() == ["peer"]
    assert passive.names() == ["peer", "segment"]
    active.segment(2)
    assert passive.names() == ["segment"]
    # The connection counts like any other.
    number = active.bind("connector", ACTIVE[1])
    passive.listen(PASSIVE[1])
    again = {"adapter": active.adapter, "object": number, "local": ACTIVE}
    status = active.refused("connect", **again, host=PASSIVE[0], port=PASSIVE[1])
    assert status is Status.ADDRESS_ALREADY_EXISTS
    active.ask("closed", connection=NUMBER)
    active.ask("connect", **again, host=PASSIVE[0], port=PASSIVE[1])
    passive.ask("closed", connection=NUMBER)
    assert NUMBER not in [number for number, *_ in world.state.connections.records]


def test_a_broker_without_descriptors_introduces_both_ends_later(old: tuple[Party, Party]) -> None:
    world = World()
    active, passive = (back(world, party) for party in old)
    world.channel_error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    assert holds(active, held(active, passive, "active")) == []
    assert holds(passive, held(passive, active, "passive")) == []
    assert active.take() == passive.take() == []
    world.channel_error = None
    for party in (active, passive):
        party.ask("sync")
    for party, other in ((active, passive), (passive, active)):
        assert party.names() == ["peer"]
        assert [by for by, _ in party.doorbells] == [other.uid]


def test_a_passive_side_learns_that_its_active_side_has_withdrawn(old: tuple[Party, Party]) -> None:
    world = World()
    active, passive = (back(world, party) for party in old)
    holds(passive, held(passive, active, "passive"))
    assert passive.take() == []
    holds(active)
    assert passive.events() == [{"ev": "withdrawn", "connection": NUMBER}]
    passive.ask("closed", connection=NUMBER)
    assert world.state.connections.records == {}


def test_a_passive_side_learns_so_too_when_the_active_side_was_first(
    old: tuple[Party, Party],
) -> None:
    world = World()
    active, passive = (back(world, party) for party in old)
    holds(active)
    holds(passive, held(passive, active, "passive"))
    assert passive.names() == ["withdrawn"]


def test_an_active_side_waits_for_a_passive_one_in_peace(old: tuple[Party, Party]) -> None:
    world = World()
    active, passive = (back(world, party) for party in old)
    holds(active, held(active, passive, "active"))
    holds(passive)  # it is through with it; the active side sees that in the link
    assert active.take() == []
    active.ask("closed", connection=NUMBER)
    assert world.state.connections.records == {}


def test_a_peer_that_never_comes_leaves_nothing_behind(old: tuple[Party, Party]) -> None:
    world = World()
    active = back(world, old[0])
    holds(active, held(active, old[1], "active"))
    active.leave()
    assert world.state.connections.records == {}
    assert world.state.connections._vacant == {}


def test_a_process_that_lost_the_broker_alone_claims_its_ends_again() -> None:
    world = World()
    active, passive, connection = connected(world)
    active.leave()
    assert passive.names() == ["gone"]
    active = back(world, active)
    assert holds(active, held(active, passive, "active", connection)) == []
    assert passive.names() == ["peer"]
    active.segment(1)
    assert passive.names() == ["segment"]


def test_unclaimed_connections_are_withdrawn() -> None:
    world = World()
    active, passive, connection = connected(world)
    active.leave()
    active = back(world, active)
    passive.take()
    holds(active)
    assert passive.events() == [{"ev": "withdrawn", "connection": connection}]


@pytest.mark.parametrize("first", ["active", "passive"])
def test_a_connection_within_one_adapter(first: str) -> None:
    world = World()
    party = world.party(holds=True)
    roles = ["active", "passive"] if first == "active" else ["passive", "active"]
    for role in roles:
        assert holds(party, held(party, party, role), done=False) == []
    holds(party)
    assert [n for n, *_ in world.state.connections.records] == [NUMBER]
    assert "withdrawn" not in party.names()
    for _ in roles:
        party.ask("closed", connection=NUMBER)
    assert world.state.connections.records == {}


def test_half_of_a_connection_within_one_adapter_is_abandoned() -> None:
    world = World()
    party = world.party(holds=True)
    holds(party, held(party, party, "passive"))
    assert party.names() == ["withdrawn"]


def test_a_repeated_claim_is_harmless(old: tuple[Party, Party]) -> None:
    world = World()
    active = back(world, old[0])
    entry = held(active, old[1], "active")
    assert holds(active, entry, entry) == []
    assert holds(active, entry) == []
    assert len(world.state.connections.records) == 1


def test_no_process_claims_an_end_of_another(old: tuple[Party, Party]) -> None:
    world = World()
    active, passive = (back(world, party) for party in old)
    hostile_peer = world.party(holds=True)
    # Not with the adapter of another process,
    ((number, why),) = holds(hostile_peer, held(active, passive, "active"), done=False)
    assert number == NUMBER
    assert active.adapter in why
    # and with its own, in any order, it makes a record that concerns no other process.
    assert holds(hostile_peer, held(hostile_peer, passive, "active"), done=False) == []
    holds(active, held(active, passive, "active"), done=False)
    assert holds(
        hostile_peer, held(hostile_peer, active, "passive"), done=False
    )  # one number, one connection
    assert holds(passive, held(passive, active, "passive")) == []
    assert holds(active) == []
    holds(hostile_peer)
    hostile_peer.ask("closed", connection=NUMBER)
    assert "withdrawn" not in passive.names()
    assert (NUMBER, active.adapter, passive.adapter) in world.state.connections.records
    active.segment(5)
    assert passive.names() == ["segment"]


def test_an_undecided_attempt_cannot_be_claimed() -> None:
    world = World()
    active, passive = world.party(), world.party()
    passive.listen(5000)
    connection = active.connect(5000)
    entry = held(passive, active, "passive", connection)
    assert holds(passive, entry)
    assert passive.refused("reject", connection=connection) is Status.CONNECTION_ABORTED


def test_a_false_claim_on_a_stranger_stays_with_its_sender(old: tuple[Party, Party]) -> None:
    world = World()
    victim, hostile_peer = world.party(), world.party()
    victim.segment(1)
    for role in ("active", "passive"):
        holds(hostile_peer, held(hostile_peer, victim, role, NUMBER + len(role)))
    assert victim.take() == []
    assert set(hostile_peer.names()) <= {"withdrawn"}  # no descriptor of the victim


def test_held_connections_are_limited() -> None:
    world = World(Limits(connections=3))
    party, other = world.party(), world.party()
    other.leave()
    entries = [held(party, other, "active", NUMBER + i) for i in range(5)]
    refused = holds(party, *entries)
    assert [number for number, _ in refused] == [NUMBER + 3, NUMBER + 4]


def test_numbers_of_two_brokers_do_not_meet() -> None:
    numbers = {connected(World())[2] for _ in range(20)}
    assert len(numbers) == 20
    assert all(0 < number < 2**63 for number in numbers)


def test_an_old_end_removes_no_later_claim_of_its_number() -> None:
    world = World()
    active, passive, number = connected(world)
    passive.ask("closed", connection=number)
    hostile_peer = {**held(passive, passive, "active", number), "peer_adapter": "ab" * 16}
    assert holds(passive, hostile_peer, done=False) == []
    active.leave()
    assert list(world.state.processes[passive.uid].connections) == [number]
    passive.leave()
    assert world.state.connections.records == {}
