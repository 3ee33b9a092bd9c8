# SPDX-License-Identifier: Apache-2.0
"""What one process rings another by: made by the broker, kept by it nowhere, lost and made anew."""

import errno
import os
from typing import Any

import pytest

from shmnd.broker.service.records import Limits
from shmnd.status import Status
from unit.broker.world import Fake, Party, World, connected

NONE_LEFT = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture
def world() -> World:
    return World()


def offered(world: World) -> tuple[Party, Party, int]:
    """An active and a passive party, and a connection that waits for its answer."""
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000))
    connection = active.connect(5000)
    return active, passive, connection


def events_of(
    world: World, party: Party, op: str, *fds: Fake, **fields: Any
) -> list[tuple[int, str]]:
    """The messages that a request makes the broker send, in order, each with its receiver."""
    world.state.handle(party.number, {"op": op, "id": 99, **fields}, list(fds))
    items = [(item.client, item.message or {}) for item in world.state.outbox.items]
    world.deliver()
    return [(client, str(message.get("ev", "reply"))) for client, message in items]


def test_a_process_is_introduced_after_it_has_its_doorbell(world: World) -> None:
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000))
    fields = active.connect_fields(5000)
    assert events_of(world, active, "connect", **fields) == [
        (active.number, "doorbell"),
        (active.number, "reply"),
        (passive.number, "peer"),
        (passive.number, "offer"),
    ]
    (offer,) = [event for event in passive.events() if event["ev"] == "offer"]
    answer = {"connection": offer["connection"], "size": 4096}
    assert events_of(world, passive, "accept", Fake(), **answer) == [
        (passive.number, "doorbell"),
        (passive.number, "reply"),
        (active.number, "peer"),
        (active.number, "accepted"),
    ]


def test_a_connect_is_refused_when_the_broker_has_no_descriptor(world: World) -> None:
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(5000))
    world.channel_error = NONE_LEFT
    connection = active.connect(5000)
    (refused,) = active.events()
    assert (refused["ev"], refused["connection"]) == ("refused", connection)
    assert refused["status"] == Status.INSUFFICIENT_RESOURCES
    assert "Too many open files" in refused["message"]
    assert passive.take() == []
    assert active.doorbells == []
    assert not world.state.connections.records
    world.channel_error = None
    active.connect(5000)  # the request is still there
    assert passive.names() == ["peer", "offer"]


def test_an_accept_that_finds_no_descriptor_may_be_made_again(world: World) -> None:
    active, passive, connection = offered(world)
    active.take()
    world.channel_error = NONE_LEFT
    fields = {"connection": connection, "size": 4096}
    assert passive.refused("accept", [Fake()], **fields) is Status.INSUFFICIENT_RESOURCES
    assert active.take() == []
    world.channel_error = None
    passive.accept(connection)
    assert active.names() == ["peer", "accepted"]


def test_an_introduction_that_fails_again_stays_pending(world: World) -> None:
    active, passive, _ = connected(world)
    active.ask("unheard", adapter=passive.adapter)
    world.channel_error = NONE_LEFT
    assert active.ask("sync")["unheard"] == [passive.adapter]
    assert active.take() == []
    world.channel_error = None
    assert active.ask("sync")["unheard"] == []
    assert active.names() == ["peer"]


def test_untaken_doorbells_are_bounded_for_each_pair() -> None:
    world = World(Limits(channels=6))
    restless, busy, _ = connected(world)
    busy.arm(busy.listen(5001))

    def tell_again() -> list[str]:
        restless.ask("unheard", adapter=busy.adapter)
        restless.ask("sync")
        names = restless.names()
        restless.doorbells.clear()
        return names

    restless.doorbells.clear()
    busy.doorbells.clear()
    assert [tell_again() for _ in range(8)] == [["peer"]] * 6 + [[]] * 2
    other = world.party()
    other.connect(5001)
    assert other.events() == [], "others are not refused for that"
    assert busy.names()[-2:] == ["peer", "offer"]
    assert len(busy.doorbells) == 6
    assert tell_again() == []
    busy.doorbells.clear()
    assert tell_again() == ["peer"]


def test_a_doorbell_that_was_lost_is_made_anew(world: World) -> None:
    active, passive, _ = connected(world)
    active.doorbells.clear()
    active.ask("doorbell_lost", process=passive.uid)
    ((told, (ringing, pidfd)),) = passive.take()
    assert (told["ev"], told["adapter"]) == ("peer", active.adapter)
    assert (ringing.kind(), pidfd) == ("2, to ring", active.pidfd)
    assert active.take() == []
    ((by, (listening,)),) = active.doorbells
    assert (by, listening.kind()) == (passive.uid, "2, to listen")


def test_a_doorbell_that_cannot_be_made_is_reported_as_lost_again(world: World) -> None:
    active, passive, _ = connected(world)
    active.doorbells.clear()
    world.channel_error = NONE_LEFT
    active.ask("doorbell_lost", process=passive.uid)
    assert active.take() == passive.take() == []
    assert active.doorbells == [(passive.uid, ())]


def test_no_process_gets_the_doorbells_of_strangers(world: World) -> None:
    active, passive, _ = connected(world)
    stranger = world.party()
    for uid in (passive.uid, stranger.uid, "0" * 32):
        stranger.ask("doorbell_lost", process=uid)
    assert [party.take() for party in (active, passive, stranger)] == [[], [], []]
    assert stranger.doorbells == []


def test_a_process_that_left_is_not_counted(world: World) -> None:
    active, passive, _ = connected(world)
    record = world.state.processes[passive.uid]
    assert set(record.channels) == {active.uid}
    active.leave()
    assert not record.channels
