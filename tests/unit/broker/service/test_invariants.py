# SPDX-License-Identifier: Apache-2.0
"""Random requests of random processes; after each of them the broker's records must agree."""

import random
from typing import Any

import pytest

from shmnd.broker.protocol import FIRST_FOR_TOOLS
from shmnd.broker.service.records import Bound, Connection, Limits, Process, Stage
from unit.broker.world import Fake, Party, World


def check(world: World) -> None:
    """Check all records of the broker against each other."""
    state = world.state
    assert state.processes == {p.uid: p for p in state._clients.values()}
    assert state.adapters == {
        uid: adapter for p in state.processes.values() for uid, adapter in p.adapters.items()
    }
    for process in state.processes.values():
        check_process(world, process)
    held = {
        (bound.protocol, bound.port, bound.host): bound
        for process in state.processes.values()
        for bound in process.objects.values()
    }
    assert held == {
        (protocol, port, host): bound
        for (protocol, port), hosts in state._ports._holders.items()
        for host, bound in hosts.items()
    }
    for connection in state.connections.records.values():
        check_connection(world, connection)
    assert state.connections.undecided == {
        each for each in state.connections.records.values() if each.stage is not Stage.ACCEPTED
    }
    for key, connection in state.connections._tuples.items():
        assert key == connection.key
        assert state.connections.records[connection.identity] is connection
    for uid, vacant in state.connections._vacant.items():
        assert vacant
        for connection in vacant.values():
            assert connection.stage is Stage.ACCEPTED
            assert any(
                end.adapter == uid and end.process is None and not end.over
                for end in (connection.active, connection.passive)
            )


def check_process(world: World, process: Process) -> None:
    state = world.state
    assert process.present
    for uid, given in process.knows.items():
        adapter = state.adapters[uid]
        assert adapter.known_by[process.uid] is process
        assert adapter.process.uid in process.met
        assert given == set(adapter.segments) & given
    for adapter in process.adapters.values():
        assert all(adapter.uid in other.knows for other in adapter.known_by.values())
        for end, connection in adapter.ends.items():
            assert end in (connection.active, connection.passive)
            assert end.process is process
            assert not end.over
    assert all(state.processes[uid] is other for uid, other in process.met.items())
    assert all(process.uid in other.met for other in process.met.values())
    assert process.segments == sum(len(a.segments) for a in process.adapters.values())
    for adapter in process.adapters.values():
        given = {number for number in adapter.segments if number < FIRST_FOR_TOOLS}
        assert adapter.shared == len(given)
        for other in adapter.known_by.values():
            assert other.knows[adapter.uid] <= given
    assert process.connections == {
        c.number: c
        for c in state.connections.records.values()
        for end in (c.active, c.passive)
        if end.process is process and not end.over
    }
    assert process.waiting_bytes == sum(
        c.weight
        for c in process.connections.values()
        if c.stage is Stage.QUEUED and c.active.process is process
    )
    for bound in process.objects.values():
        check_bound(bound)


def check_bound(bound: Bound) -> None:
    assert not (bound.armed and bound.queue), "a request waits, and so does a connector"
    for connection in bound.queue.values():
        assert connection.listener is bound
        assert connection.stage is Stage.QUEUED
    if bound.connection is not None:
        assert bound.connection.source is bound
        assert not bound.connection.active.over


def check_connection(world: World, connection: Connection) -> None:
    ends = (connection.active, connection.passive)
    assert not all(end.over for end in ends)
    for end in ends:
        adapter = world.state.adapters.get(end.adapter)
        if end.process is not None and not end.over:
            assert adapter is not None
            assert adapter.process is end.process
            assert adapter.ends[end] is connection
        elif adapter is not None:
            assert end not in adapter.ends
    if connection.stage is Stage.ACCEPTED:
        assert any(end.process is not None and not end.over for end in ends)
    else:
        assert world.state.connections._tuples[connection.key] is connection
        assert connection.active.process is not None
        assert (connection.listener is not None) is (connection.stage is Stage.QUEUED)
    if connection.listener is not None:
        assert connection.number in connection.listener.queue


class Player:
    """Makes random moves with a few processes, some of which come back after they left."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.world = World(Limits(backlog=3, objects=6, segments=3, waiting_bytes=2000))
        self.parties: list[Party] = [self.world.party() for _ in range(3)]
        self.numbers: list[int] = [1]
        self.adapters: list[str] = [party.adapter for party in self.parties]

    def move(self) -> None:
        at = self.random.randrange(len(self.parties))
        party = self.parties[at]
        if self.random.random() < 0.02:
            party.leave()
            check(self.world)
            again = self.random.random() < 0.7
            new = self.world.party(key=party.key, holds=True) if again else self.world.party()
            if again:
                new.adapter = party.adapter
                new.ask("adapter", key=new.adapter_key)
            self.parties[at] = new
            self.adapters = [*self.adapters[-6:], new.adapter]
        else:
            op, fields, fds = self.request(party)
            reply = party.raw(op, fds, **fields)
            if "connection" in reply:
                self.numbers = [*self.numbers[-12:], reply["connection"]]
        for other in self.parties:
            other.take()

    def request(self, party: Party) -> tuple[str, dict[str, Any], list[Fake]]:
        pick = self.random
        number = pick.randrange(1, 8)
        adapter = {"adapter": party.adapter}
        connection = {"connection": pick.choice(self.numbers)}
        bound = party.world.state.processes[party.uid].objects.get(number)
        host = bound.host if bound else "127.0.0.1"
        port = bound.port if bound else 50000
        held = {
            **connection,
            **adapter,
            "peer_adapter": pick.choice(self.adapters),
            "local": [host, port],
            "peer": ["127.0.0.1", 5000],
            "role": pick.choice(["active", "passive"]),
        }
        moves: list[tuple[str, dict[str, Any], int]] = [
            ("adapter", {"key": party.adapter_key}, 0),
            ("segment", {**adapter, "seg": number, "size": 1, "writable": True}, 1),
            ("segment_close", {**adapter, "seg": number}, 0),
            (
                "segment",
                {**adapter, "seg": FIRST_FOR_TOOLS + number, "size": 1, "writable": True},
                1,
            ),
            ("segment_close", {**adapter, "seg": FIRST_FOR_TOOLS + number}, 0),
            (
                "bind",
                {
                    **adapter,
                    "object": number,
                    "kind": "listener" if number < 3 else "connector",
                    "host": pick.choice(["127.0.0.1", "0.0.0.0"]),
                    "port": pick.choice([5000, 5001]) if number < 3 else 0,
                },
                0,
            ),
            ("listen", {"object": number, "backlog": pick.randrange(3)}, 0),
            ("request", {"object": number, "connector": pick.randrange(1, 20)}, 0),
            ("cancel_request", {"object": number, "connector": pick.randrange(1, 20)}, 0),
            (
                "connect",
                {
                    **adapter,
                    "object": number,
                    "local": ["127.0.0.1", port],
                    "host": "127.0.0.1",
                    "port": pick.choice([5000, 5001]),
                    "offer": "y" * pick.randrange(500),
                },
                0,
            ),
            ("withdraw", connection, 0),
            ("accept", {**connection, "size": 1}, 1),
            ("reject", connection, 0),
            ("close", {"object": number}, 0),
            ("closed", connection, 0),
            ("closed", {**connection, "object": number}, 0),
            ("holds", {"connections": [held], "done": pick.random() < 0.5}, 0),
        ]
        weights = [1, 2, 1, 1, 1, 8, 8, 8, 2, 10, 2, 10, 2, 1, 2, 1, 2]
        if pick.random() < 0.01:
            return "adapter_close", adapter, []
        op, fields, fds = pick.choices(moves, weights)[0]
        return op, fields, [Fake() for _ in range(fds)]


def test_a_connect_whose_number_the_listening_process_claims_is_refused() -> None:
    """A random game found it: the offer took the place of the claimed end."""
    world = World()
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    number = active.connect(5000)
    claimed = {
        "connection": number,
        "adapter": passive.adapter,
        "peer_adapter": passive.adapter,
        "local": ["127.0.0.1", 5001],
        "peer": ["127.0.0.1", 5000],
        "role": "passive",
    }
    passive.ask("holds", connections=[claimed], done=False)
    passive.arm(listener)
    check(world)
    assert active.names() == ["refused"]
    passive.ask("closed", connection=number)
    other = active.connect(5000)
    passive.accept(other)
    check(world)
    assert "accepted" in active.names()


@pytest.mark.slow
@pytest.mark.parametrize("game", range(20))
def test_records_agree_after_every_move(game: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    player = Player(random.Random(seed))
    for _ in range(400):
        player.move()
        check(player.world)
    state = player.world.state
    for party in player.parties:
        party.leave()
        check(player.world)
    assert (state.adapters, state.connections.records) == ({}, {})
    assert (state.connections._tuples, state.connections._vacant) == ({}, {})
    assert state._ports._holders == {}
