# SPDX-License-Identifier: Apache-2.0
"""Windows that a peer writes through and then ends, again and again, between real processes.

The owner binds a window and tells its token; the peer writes through it as fast as it can and ends
it with a message. From the moment the owner sees that message the memory is the owner's again: it
writes a pattern of its own, and looks whether a byte of it has changed when the next window comes.
"""

import os
import random
import struct
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmnd
from shmnd import OpFlag, RequestType, Status
from stress.traffic import WAIT, Plan, Side, post, run

SEED = int(os.environ.get("SHMND_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
OFFER = struct.Struct("<QI")
SHOWN = 4096
WRITES = 8


def connect(side: Side, pipe: Connection, *, listens: bool) -> list[Any]:
    """Connect all pairs; the connectors keep them so."""
    connectors = [side.adapter.create_connector() for _ in side.pairs]
    if listens:
        listener = side.adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        pipe.send(listener.get_local_address())
        for pair, connector in zip(side.pairs, connectors, strict=True):
            listener.get_connection_request(connector).result(WAIT)
            connector.accept(pair).result(WAIT)
    else:
        address = pipe.recv()
        for pair, connector in zip(side.pairs, connectors, strict=True):
            connector.connect(pair, address).result(WAIT)
            connector.complete_connect().result(WAIT)
    return connectors


class Shown:
    """One connection of the owner: its window, and the memory that it shows."""

    def __init__(self, side: Side, number: int) -> None:
        self.side, self.number = side, number
        self.memory = side.adapter.allocate(SHOWN)
        self.region = side.adapter.create_memory_region()
        self.region.register(self.memory, 1).result(WAIT)
        self.window = side.adapter.create_memory_window()
        self.window._set_invalidate_context(("gone", number))
        self.rounds = 0

    def offer(self) -> None:
        """Bind the window and tell the peer."""
        pair = self.side.pairs[self.number]
        assert self.rounds == 0 or (self.memory == self.rounds % 251).all(), "a byte moved"
        self.side.receive(self.number)
        address = self.region.address
        flags = OpFlag.ALLOW_WRITE
        pair.bind(self.region, self.window, address, SHOWN, "bound", flags=flags)
        slot = self.number * self.side.plan.depth
        buffer = self.side.buffers[slot]
        token = self.window.remote_token
        buffer[: OFFER.size] = bytearray(OFFER.pack(address, token))
        pair.send(self.side.regions[slot].sge(0, OFFER.size), "offered")

    def over(self) -> None:
        """Have the memory back."""
        assert not self.window._is_bound()
        assert (self.memory >= 252).all(), "a Write before the message was not whole"
        self.rounds += 1
        self.memory[:] = self.rounds % 251


class Ends(Side):
    """A side whose connection `number` receives into the last of its buffers."""

    def receive(self, number: int) -> None:
        post(self, number, number * self.plan.depth + self.plan.depth - 1)


def owner(plan: Plan, pipe: Connection) -> None:
    """The process whose memory it is."""
    side = Ends(plan, plan.receiver_memory)
    with side.adapter:
        connectors = connect(side, pipe, listens=True)
        shown = [Shown(side, number) for number in range(plan.connections)]
        for each in shown:
            each.offer()
        left, last = plan.connections * plan.messages, dict.fromkeys(range(plan.connections), 0)
        while left:
            for result in side.wait(side.receive_cq):
                assert result.status is Status.SUCCESS, result
                number = result.queue_pair_context
                if result.request_type is RequestType.RECEIVE:
                    shown[number].over()
                    last[number] += 1
                elif result.request_type is RequestType.INVALIDATE:
                    assert result.request_context == ("gone", number)
                    left -= 1
                    assert last[number] == shown[number].rounds
                    if shown[number].rounds < plan.messages:
                        shown[number].offer()
        pipe.send(sum(each.rounds for each in shown))
        pipe.recv()
        del connectors


def peer(plan: Plan, pipe: Connection) -> None:
    """The process that writes, and ends each window."""
    side = Ends(plan, plan.sender_memory)
    chance = random.Random(plan.seed)
    with side.adapter:
        for number in range(plan.connections):
            side.receive(number)
        connectors = connect(side, pipe, listens=False)
        left = plan.connections * plan.messages
        while left:
            for result in side.wait(side.receive_cq):
                assert result.status is Status.SUCCESS, result
                if result.request_type is RequestType.RECEIVE:
                    number, slot = result.queue_pair_context, result.request_context
                    address, token = OFFER.unpack(bytes(side.buffers[slot][: OFFER.size]))
                    post(side, number, slot)
                    _use(side, number, address, token, chance)
                elif result.request_context == "ended":
                    left -= 1
        pipe.send("sent")
        pipe.recv()
        del connectors


def _use(side: Side, number: int, address: int, token: int, chance: random.Random) -> None:
    pair, slot = side.pairs[number], number * side.plan.depth
    buffer, region = side.buffers[slot], side.regions[slot]
    buffer[:SHOWN] = 252 + chance.randrange(4)
    pair.write(region.sge(0, SHOWN), address, token, "written")
    for _ in range(chance.randrange(WRITES)):
        offset = chance.randrange(SHOWN)
        length = chance.randrange(SHOWN - offset)
        sge = region.sge(0, length)
        pair.write(sge, address + offset, token, "written", flags=OpFlag.SILENT_SUCCESS)
    size = chance.choice([0, 8, 900, 2000, 20_000, 70_000])
    pair._send_and_invalidate(region.sge(0, size), token, "ended")


PLANS = {
    "one": {"connections": 1, "messages": 3000},
    "many": {"connections": 12, "messages": 300},
    "private": {"sender_memory": "private", "receiver_memory": "private"},
    "private out of reach": {
        "sender_memory": "private",
        "receiver_memory": "private",
        "reach": False,
    },
    "shared receive queue": {"srq": True},
}


@pytest.mark.stress
@pytest.mark.parametrize("name", list(PLANS))
def test_no_byte_moves_after_a_window_was_ended(name: str) -> None:
    wanted: dict[str, Any] = {"connections": 3, "messages": 600, **PLANS[name]}
    plan = Plan(seed=SEED, depth=16, largest=70_000, **wanted)
    print(f"seed: SHMND_SEED={SEED}, shmnd {shmnd.__version__}")
    assert run(plan, (owner, peer)) == plan.messages * plan.connections
