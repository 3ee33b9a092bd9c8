# SPDX-License-Identifier: Apache-2.0
"""One end of a connection, in a process of its own, which does what it is asked for.

It serves the table of `progress_table.py`: it posts requests, and then polls, polls another queue,
sleeps for another event, or computes, which is to make no call at all.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import shmnd
from processes.kit import PATIENCE, listening
from shmnd import MrFlag, OpFlag, Status

EVERYTHING: Final = (
    MrFlag.ALLOW_LOCAL_WRITE
    | MrFlag.ALLOW_REMOTE_READ
    | MrFlag.ALLOW_REMOTE_WRITE
    | MrFlag.RDMA_READ_SINK
)
DEPTH: Final = 512


def asked() -> bool:
    """Return whether the parent has said something."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


class Memory:
    """Messages of one length, one behind the other; in a segment, in private memory or in both."""

    def __init__(self, adapter: shmnd.Adapter, kind: str, count: int, nbytes: int) -> None:
        self.count, self.nbytes = count, nbytes
        total = max(1, count * nbytes)
        self.parts: list[Any] = []
        self.regions: list[shmnd.MemoryRegion] = []
        for private in {"segment": (False,), "private": (True,), "both": (True, False)}[kind]:
            part: Any = np.zeros(total, np.uint8) if private else adapter.allocate(total)
            region = adapter.create_memory_region()
            region.register(part, EVERYTHING).result(PATIENCE)
            self.parts.append(part)
            self.regions.append(region)

    def sge(self, number: int) -> Any:
        """Return the elements of one message: of both kinds of memory, half of it each."""
        at, half = number * self.nbytes, self.nbytes // len(self.parts)
        elements = [region.sge(at, half) for region in self.regions[:-1]]
        elements.append(self.regions[-1].sge(at, self.nbytes - half * len(elements)))
        return elements

    def fill(self) -> None:
        """Write what no other memory holds."""
        for part in self.parts:
            part[:] = np.arange(1, len(part) + 1, dtype=np.uint64) % 251 + 1

    def is_filled(self) -> bool:
        """Return whether the last message holds such bytes, all of them."""
        at, half = (self.count - 1) * self.nbytes, self.nbytes // len(self.parts)
        lengths = [half] * (len(self.parts) - 1) + [self.nbytes - half * (len(self.parts) - 1)]
        return all(
            bool((part[at : at + n] != 0).all())
            for part, n in zip(self.parts, lengths, strict=True)
        )


class End:
    """One end; `serve` answers the parent until it says no more."""

    def __init__(self, say: Callable[..., None], hear: Callable[[], Any]) -> None:
        self.say, self.hear = say, hear
        self.adapter = shmnd.open_adapter(rnr_timeout=600.0)
        self.listener = listening(self.adapter)
        self.other = self.adapter.create_completion_queue(16)
        self.memory: Memory
        self.made: list[Any] = []

    def serve(self) -> None:
        """Carry out one command after another."""
        self.say(list(self.listener.get_local_address()))
        while (command := self.hear()) != "over":
            name, *arguments = command
            getattr(self, name)(*arguments)
        self.adapter.close()

    # -- a connection --

    def meet(self, address: Any, kind: str, count: int, nbytes: int, srq: bool) -> None:
        """Connect to an address, or accept; say where our memory lies."""
        depth = min(DEPTH, max(16, count + 8))
        self.cq = self.adapter.create_completion_queue(4 * depth)
        self.srq = self.adapter.create_shared_receive_queue(depth) if srq else None
        if self.srq is None:
            self.qp = self.adapter.create_queue_pair(
                self.cq, self.cq, receive_depth=depth, initiator_depth=depth, max_receive_sge=2
            )
        else:
            self.qp = self.adapter.create_queue_pair_with_srq(self.cq, self.cq, self.srq)
        self.connector = self.adapter.create_connector()
        if address is not None:
            self.connector.connect(self.qp, tuple(address), 8, 8).result(PATIENCE)
            self.connector.complete_connect().result(PATIENCE)
        else:
            self.listener.get_connection_request(self.connector).result(PATIENCE)
            self.connector.accept(self.qp, 8, 8).result(PATIENCE)
        self.memory = Memory(self.adapter, kind, count, nbytes)
        self.ended: list[shmnd.Result] = []
        self.operation: Any = None
        region = self.memory.regions[-1]
        self.say([region.address, region.remote_token])

    def part(self) -> None:
        """End the connection."""
        self.qp.close()
        self.connector.close()
        self.cq.close()
        if self.srq is not None:
            self.srq.close()
        for region in self.memory.regions:
            region.deregister().result(PATIENCE)
        self.made.clear()
        self.say("parted")

    # -- requests --

    def receive(self, count: int) -> None:
        """Post a receive for each of so many messages."""
        for number in range(count):
            (self.srq or self.qp).receive(self.memory.sge(number), "received")
        self.say("posted")

    def receive_nothing(self) -> None:
        """Post a receive that is too short for any message."""
        self.qp.receive(None, "received")
        self.say("posted")

    def lend(self) -> None:
        """Bind a window for the peer, and say its token."""
        window = self.adapter.create_memory_window()
        region = self.memory.regions[-1]
        self.qp.bind(region, window, region.address, 1, "bound", flags=OpFlag.ALLOW_READ)
        self.cq.wait_one(timeout=PATIENCE).raise_if_failed()
        self.made.append(window)
        self.say(window.remote_token)

    def fill(self) -> None:
        """Write what no other memory holds."""
        self.memory.fill()
        self.say("filled")

    def post(self, name: str, count: int, address: int, token: int) -> None:
        """Post the requests of a row."""
        if name != "read":
            self.memory.fill()
        if name == "send":
            for number in range(count):
                self.qp.send(self.memory.sge(number), "sent")
        else:
            getattr(self, f"post_{name}")(address, token)
        self.say("posted")

    def post_send_and_invalidate(self, address: int, token: int) -> None:
        """Post a Send that ends a window of the peer's."""
        self.qp._send_and_invalidate(self.memory.sge(0), token, "sent")

    def post_write(self, address: int, token: int) -> None:
        """Post a Write of our memory into the peer's."""
        self.qp.write(self.memory.sge(0), address, token, "written")

    def post_read(self, address: int, token: int) -> None:
        """Post a Read of the peer's memory into ours."""
        self.qp.read(self.memory.sge(0), address, token, "read")

    def post_send_and_write(self, address: int, token: int) -> None:
        """Post a Send, and behind it a Write of the message behind it."""
        self.qp.send(self.memory.sge(0), "sent")
        self.qp.write(self.memory.sge(1), address + self.memory.nbytes, token, "written")

    def post_bind(self, address: int, token: int) -> None:
        """Bind a window on our memory."""
        region, window = self.memory.regions[-1], self.adapter.create_memory_window()
        self.made.append(window)
        self.qp.bind(region, window, region.address, 1, "bound", flags=OpFlag.ALLOW_READ)

    def post_invalidate(self, address: int, token: int) -> None:
        """Invalidate a window that we bound before."""
        self.qp.invalidate(self.made[-1], "invalidated")

    def post_disconnect(self, address: int, token: int) -> None:
        """End the connection."""
        self.operation = self.connector.disconnect()

    # -- what it does meanwhile --

    def polls(self, wanted: int) -> None:
        """Poll the queue of the connection, and say when so many requests have ended."""
        self.say("in")
        told = False
        while not asked():
            self.ended += self.cq.get_results()
            if not told and self._has(wanted):
                told = True
                self.say("ended")

    def polls_another_queue(self, wanted: int) -> None:
        """Poll a queue that has nothing to do with the connection."""
        self.say("in")
        while not asked():
            self.other.get_results()

    def sleeps(self, wanted: int) -> None:
        """Sleep for another event, until it is interrupted."""
        self.say("in")
        try:
            self.other.wait(timeout=600)
        except KeyboardInterrupt:
            self.say("awake")

    def computes(self, wanted: int) -> None:
        """Make no call."""
        self.say("in")

    def _has(self, wanted: int) -> bool:
        if self.operation is not None:
            return bool(self.operation.done())
        return len(self.ended) >= wanted or any(
            each.status is not Status.SUCCESS for each in self.ended
        )

    # -- the outcome --

    def poll_once(self, wanted: int) -> None:
        """Report whether so many requests had ended before this one poll."""
        self.ended += self.cq.get_results()
        self.say(self._has(wanted))

    def peek(self, wanted: int) -> None:
        """Report whether the last bytes are there, by loads and no call."""
        self.say(self.memory.is_filled())
