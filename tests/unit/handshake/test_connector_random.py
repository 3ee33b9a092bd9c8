# SPDX-License-Identifier: Apache-2.0
"""Random programs over several connectors of two processes: nothing is lost, nothing is left."""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from shmnd.handshake.attempt import State
from shmnd.overlapped import Overlapped
from shmnd.status import NdError, Status
from unit.fakes import World
from unit.sides import End

STEPS = 100
WIDTH = 3


class Program:
    """A random sequence of calls, in any order that a program could make them."""

    def __init__(self, world: World, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = world
        self.ends = [End(world, "127.0.0.1"), End(world, "127.0.0.2")]
        self.accepted: dict[int, list[Overlapped]] = {0: [], 1: []}
        self.delivered: dict[int, list[Overlapped]] = {0: [], 1: []}
        self.connectors: dict[int, list[Any]] = {0: [], 1: []}
        self.pairs: dict[int, list[Any]] = {0: [], 1: []}
        self.listeners: dict[int, Any] = {}
        for side in (0, 1):
            self.listen(side)
            for _ in range(WIDTH):
                self.renew(side, _)

    def listen(self, side: int) -> None:
        listener = self.ends[side].new_listener()
        listener.bind((self.ends[side].adapter._host, 0))
        listener.listen(self.chance.choice((0, 1, 2)))
        self.listeners[side] = listener

    def renew(self, side: int, index: int) -> None:
        """New objects in the place of old ones, which are released by that."""
        for things, make in (
            (self.connectors[side], self.ends[side].new_connector),
            (self.pairs[side], self.ends[side].adapter.queue_pair),
        ):
            if index == len(things):
                things.append(make())
            elif self.chance.random() < 0.7:
                things[index] = make()

    def step(self) -> None:
        side, index = self.chance.randrange(2), self.chance.randrange(WIDTH)
        connector, qp = self.connectors[side][index], self.pairs[side][index]
        target = self.listeners[self.chance.randrange(2)]
        calls: list[Callable[[], Any]] = [
            lambda: connector.bind((self.ends[side].adapter._host, 0)),
            lambda: connector.connect(qp, target.get_local_address(), 1, 1, b"x"),
            lambda: connector.connect(qp, target.get_local_address(), 1, 1, b"x"),
            lambda: self.listeners[side].get_connection_request(connector),
            lambda: self.listeners[side].get_connection_request(connector),
            lambda: connector.accept(qp, 1, 1, b"y"),
            lambda: connector.accept(qp, 1, 1, b"y"),
            connector.complete_connect,
            connector.complete_connect,
            connector.notify_disconnect,
            connector.reject,
            connector.disconnect,
            connector.cancel_overlapped_requests,
            self.listeners[side].cancel_overlapped_requests,
            connector.get_read_limits,
            connector.get_private_data,
            lambda: self.renew(side, index),
            lambda: self.renew(side, index),
            qp.close,
            connector.close,
            lambda: self.poll(side),
            lambda: self.poll(1 - side),
            lambda: self.rarely(side),
        ]
        natural: dict[State, Callable[[], Any]] = {
            State.NEW: self.chance.choice(calls[1:5]),
            State.BOUND: calls[1],
            State.CONNECTING: lambda: self.poll(side),
            State.WAITING: lambda: self.poll(side),
            State.OFFERED: calls[5],
            State.ACCEPTED: connector.complete_connect,
            State.ACCEPTING: lambda: self.poll(side),
            State.CONNECTED: connector.notify_disconnect,
            State.DOWN: connector.disconnect,
            State.CLOSED: lambda: self.renew(side, index),
        }
        likely = self.chance.random() < 0.6
        call = natural[connector._state] if likely else self.chance.choice(calls)
        try:
            result = call()
        except NdError:
            return
        if isinstance(result, Overlapped):
            self.accepted[side].append(result)

    def rarely(self, side: int) -> None:
        what = self.chance.randrange(6)
        if what == 0:
            self.world.broker.die()
        elif what == 1:
            self.listeners[side].close()
            self.listen(side)
        elif what == 2:
            self.listen(side)  # the old one is released by that
        elif what == 3:
            op = self.chance.choice(("bind", "connect", "accept", "request"))
            self.world.broker.fail[op] = Status.INSUFFICIENT_RESOURCES
        elif what == 4:
            self.pairs[side][0].steps_to_disconnect = 2

    def poll(self, side: int) -> None:
        self.delivered[side] += self.ends[side].file.poll(self.chance.choice((None, 1, 2)))

    def finish(self) -> None:
        self.world.broker.fail.clear()
        for side in (0, 1):
            while self.connectors[side]:
                self.connectors[side].pop().close()
                self.pairs[side].pop()
            self.listeners.pop(side).close()
        for _ in range(5):  # a disconnect takes its steps, a message its way
            self.world.progress()
        for side in (0, 1):
            self.delivered[side] += self.ends[side].file.poll()


@pytest.mark.parametrize("number", range(40))
def test_random_program(number: int) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    run(seed)


@pytest.mark.soak
def test_random_programs_for_long() -> None:
    for seed in range(20000):
        print(f"seed {seed}")
        run(seed)


def run(seed: int) -> None:
    world = World()
    program = Program(world, seed)
    for _ in range(STEPS):
        program.step()
    program.finish()
    for side in (0, 1):
        accepted, delivered = program.accepted[side], program.delivered[side]
        assert all(ov._seen() is not Status.PENDING for ov in accepted), seed
        assert len(delivered) == len(accepted), f"seed {seed}: each exactly once"
        assert set(delivered) == set(accepted), seed
        engine = program.ends[side].engine
        assert not engine._ends, seed
        assert not engine.pending_operations, seed
        assert not engine.pending_operations._unfinished, seed
        assert not engine.broker_state.bound, seed
        assert not engine.broker_state.armed, seed
        assert not engine.broker_state.live, seed
    rendezvous = world.broker.rendezvous
    assert not rendezvous.connections.records, seed
    assert not [b for p in rendezvous.processes.values() for b in p.objects.values()], seed
    vars(program).clear()
    world.close()
