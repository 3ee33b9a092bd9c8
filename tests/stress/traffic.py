# SPDX-License-Identifier: Apache-2.0
"""Traffic whose every message says what it must be, between real processes.

A message carries its number and a checksum over its whole length. The receiving process checks
number, length and bytes of each, on each of several connections, and tells what it saw.
"""

from __future__ import annotations

import multiprocessing
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import shmnd
import shmnd.adapter as adapter_module
from shmnd import MrFlag, RequestType, Status

LOCAL = MrFlag.ALLOW_LOCAL_WRITE
HEAD = struct.Struct("<QII")
WAIT = 20.0
"""Seconds after which what must happen counts as missing."""
RUN = 100.0
"""Seconds that all messages of a run may take together, on a busy machine."""


@dataclass(frozen=True)
class Plan:
    """One run of traffic."""

    seed: int
    connections: int = 2
    messages: int = 2000
    largest: int = 300_000
    depth: int = 16
    sender_memory: str = "segment"
    receiver_memory: str = "segment"
    srq: bool = False
    reach: bool = True  # may the processes copy each other's private memory?
    two_queues: bool = False
    batch: str = ""  # "submitted": each round of posts; "left open": begun anew, never submitted

    def sizes(self, number: int) -> list[int]:
        """Lengths of a connection's messages: mostly short, some just around a limit."""
        chance = random.Random(self.seed * 1009 + number)
        edges = [0, 1, 47, 48, 49, 103, 104, 105, 511, 512, 3575, 3576, 3577, 131071, 131072]
        usable = [size for size in edges if size <= self.largest]

        def one() -> int:
            kind = chance.random()
            if kind < 0.5:
                return chance.randrange(0, min(2000, self.largest))
            if kind < 0.8:
                return chance.choice(usable)
            return chance.randrange(0, self.largest)

        return [one() for _ in range(self.messages)]


def fill(buffer: np.ndarray[Any, Any], number: int, size: int) -> None:
    """Write message `number` of `size` bytes."""
    body = buffer[:size]
    body[:] = (np.arange(size, dtype=np.uint32) * 31 + number).astype(np.uint8)
    if size >= HEAD.size:
        check = zlib.crc32(body[HEAD.size :])
        body[: HEAD.size] = np.frombuffer(HEAD.pack(number, size, check), np.uint8)


def right(buffer: np.ndarray[Any, Any], number: int, size: int) -> bool:
    """Is this message `number`, whole?"""
    want = np.empty(size, np.uint8)
    fill(want, number, size)
    return bool((buffer[:size] == want).all())


def memory(adapter: shmnd.Adapter, kind: str, nbytes: int) -> np.ndarray[Any, Any]:
    """Memory of a kind; private memory begins at an odd address."""
    if kind == "segment":
        return adapter.allocate(nbytes)
    return np.zeros(nbytes + 3, np.uint8)[3:]


class _Unreachable:
    """A probe that no process can read."""

    address, nonce = 8, "00" * 16


def open_adapter(plan: Plan) -> shmnd.Adapter:
    """An adapter; one whose probe is wrong counts as out of reach."""
    if not plan.reach:
        adapter_module.Probe = _Unreachable  # type: ignore[assignment, misc]
    return shmnd.open_adapter(rnr_timeout=WAIT)


class Side:
    """One process's side of all connections."""

    def __init__(self, plan: Plan, kind: str) -> None:
        self.plan = plan
        self.adapter = open_adapter(plan)
        deep = plan.depth * plan.connections * 2 + 8
        self.receive_cq = self.adapter.create_completion_queue(deep)
        self.initiator_cq = (
            self.adapter.create_completion_queue(deep) if plan.two_queues else self.receive_cq
        )
        slots = plan.depth * plan.connections
        self.buffers = [memory(self.adapter, kind, max(1, plan.largest)) for _ in range(slots)]
        self.regions = []
        for buffer in self.buffers:
            region = self.adapter.create_memory_region()
            region.register(buffer, LOCAL).result(WAIT)
            self.regions.append(region)
        self.srq = None
        if plan.srq:
            self.srq = self.adapter.create_shared_receive_queue(slots)
        self.pairs = [self._pair(number) for number in range(plan.connections)]

    def _pair(self, number: int) -> shmnd.QueuePair:
        if self.srq is not None:
            return self.adapter.create_queue_pair_with_srq(
                self.receive_cq, self.initiator_cq, self.srq, context=number
            )
        return self.adapter.create_queue_pair(
            self.receive_cq,
            self.initiator_cq,
            context=number,
            receive_depth=self.plan.depth,
            initiator_depth=self.plan.depth,
        )

    def wait(self, queue: shmnd.CompletionQueue) -> list[shmnd.Result]:
        """Completions, within bounds."""
        results = queue.wait(64, WAIT)
        if not results:
            raise TimeoutError(f"no completion within {WAIT} s")
        return results


def send_all(side: Side) -> None:
    """Send every message of every connection, as fast as the depths allow."""
    plan = side.plan
    sizes = [plan.sizes(number) for number in range(plan.connections)]
    free = list(range(len(side.buffers)))
    following = [0] * plan.connections
    flying = [0] * plan.connections
    left = plan.connections * plan.messages
    while left:
        for number, pair in enumerate(side.pairs):
            if plan.batch:
                pair._begin_batch()
            while following[number] < plan.messages and flying[number] < plan.depth and free:
                slot, message = free.pop(), following[number]
                size = sizes[number][message]
                fill(side.buffers[slot], message, size)
                pair.send(side.regions[slot].sge(0, size), slot)
                following[number] += 1
                flying[number] += 1
            if plan.batch == "submitted":
                pair._submit_batch()
        for result in side.wait(side.initiator_cq):
            assert result.request_type is RequestType.SEND
            assert result.status is Status.SUCCESS, result
            free.append(result.request_context)
            flying[result.queue_pair_context] -= 1
            left -= 1


def receive_all(side: Side) -> int:
    """Receive and check every message; how many were right."""
    plan = side.plan
    sizes = [plan.sizes(number) for number in range(plan.connections)]
    following = [0] * plan.connections
    for _ in range(plan.connections * plan.messages):
        _one(side, sizes, following)
    return sum(following)


_ready: list[shmnd.Result] = []


def _one(side: Side, sizes: list[list[int]], following: list[int]) -> None:
    if not _ready:
        if side.plan.batch == "submitted":
            for pair in side.pairs:
                pair._submit_batch()
                pair._begin_batch()
        _ready.extend(side.wait(side.receive_cq))
    result = _ready.pop(0)
    assert result.status is Status.SUCCESS, result
    number, slot = result.queue_pair_context, result.request_context
    message = following[number]
    size = sizes[number][message]
    assert result.bytes_transferred == size, (number, message, result.bytes_transferred, size)
    assert right(side.buffers[slot], message, size), (number, message, size)
    following[number] = message + 1
    post(side, number, slot)


def post(side: Side, number: int, slot: int) -> None:
    """Post a buffer for a connection, or for all."""
    target: Any = side.srq if side.srq is not None else side.pairs[number]
    target.receive(side.regions[slot].sge(), slot)


def receiver(plan: Plan, pipe: Connection) -> None:
    """The process that receives."""
    side = Side(plan, plan.receiver_memory)
    with side.adapter:
        for slot in range(len(side.buffers)):
            post(side, slot // plan.depth, slot)
        listener = side.adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        pipe.send(listener.get_local_address())
        connectors = []
        for pair in side.pairs:
            connector = side.adapter.create_connector()
            listener.get_connection_request(connector).result(WAIT)
            connector.accept(pair).result(WAIT)
            connectors.append(connector)
        pipe.send(receive_all(side))
        pipe.recv()


def sender(plan: Plan, pipe: Connection) -> None:
    """The process that sends."""
    side = Side(plan, plan.sender_memory)
    with side.adapter:
        address = pipe.recv()
        connectors = []
        for pair in side.pairs:
            connector = side.adapter.create_connector()
            connector.connect(pair, address).result(WAIT)
            connector.complete_connect().result(WAIT)
            connectors.append(connector)
        send_all(side)
        pipe.send("sent")
        pipe.recv()


Role = Callable[[Plan, Connection], None]


def run(plan: Plan, roles: tuple[Role, Role] = (receiver, sender)) -> int:
    """Both processes; how many messages were right."""
    context = multiprocessing.get_context("spawn")
    pipes = []
    processes = []
    for role in roles:
        here, there = context.Pipe()
        process = context.Process(target=_guarded, args=(role, plan, there), daemon=True)
        process.start()
        there.close()
        pipes.append(here)
        processes.append(process)
    try:
        address = _expect(pipes[0])
        pipes[1].send(address)
        got = _expect(pipes[0])
        assert _expect(pipes[1]) == "sent"
        for pipe in pipes:
            pipe.send("done")
        for process in processes:
            process.join(WAIT)
            assert process.exitcode == 0
        assert isinstance(got, int)
        return got
    finally:
        for process in processes:
            process.kill()
            process.join(WAIT)
            process.close()
        for pipe in pipes:
            pipe.close()


def _guarded(role: Role, plan: Plan, pipe: Connection) -> None:
    try:
        role(plan, pipe)
    except BaseException as exc:
        pipe.send(exc)
        raise


def _expect(pipe: Connection) -> Any:
    if not pipe.poll(RUN):
        raise TimeoutError("a process says nothing")
    said = pipe.recv()
    if isinstance(said, BaseException):
        raise said
    return said
