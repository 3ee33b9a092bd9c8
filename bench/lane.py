# SPDX-License-Identifier: Apache-2.0
"""One connection of shmnd with all that a benchmark's loop needs at hand.

The set-up is an ordinary program on the public interface: register, create the queues, post the
first Receives, then connect; the private data carries where the peer may write.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import shmnd

from .question import Kind, Question

if TYPE_CHECKING:
    import numpy

    from shmnd import Adapter, CompletionQueue, Connector, MemoryRegion, QueuePair, Result, Sge

LIMIT = 20.0
"""Seconds for any step of the set-up."""

MARKS = 255
"""How many marks there are for Writes."""

_PRIVATE = struct.Struct("<QI")  # address and token of the inbox
_LINE = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Depths:
    """How much a lane has in flight."""

    receives: int
    sends: int
    by_default: bool = False
    """Leave the depths of the queue pair to the adapter, and use no more than said here."""

    @classmethod
    def of(cls, question: Question) -> Depths:
        """Choose depths for a question: few for a ping-pong, and for a stream enough that
        neither side waits for the other's turn to post.
        """
        if question.kind is not Kind.STREAM:
            return cls(8, 8, by_default=bool(question.idle))
        return cls(1024, 512) if question.size < 1024 else cls(32, 16)


@dataclasses.dataclass(slots=True)
class Lane:
    """A queue pair, its two completion queues, and registered memory on both sides."""

    qp: QueuePair
    receive_cq: CompletionQueue
    initiator_cq: CompletionQueue
    depths: Depths
    region: MemoryRegion
    outbox: numpy.ndarray
    inbox: numpy.ndarray
    outgoing: Sge
    incoming: Sge
    inbox_address: int
    connector: Connector
    remote_address: int = 0
    remote_token: int = 0
    writes: int = 0

    @classmethod
    def create(
        cls,
        adapter: Adapter,
        size: int,
        depths: Depths,
        queues: tuple[CompletionQueue, CompletionQueue] | None = None,
    ) -> Lane:
        """Make all objects and post the first Receives; `queues` are shared ones to use."""
        span = -(-max(size, 1) // _LINE) * _LINE
        memory = adapter.allocate(2 * span)
        memory[:] = 0  # every page is there before the clock runs
        region = adapter.create_memory_region()
        region.register(memory, shmnd.MrFlag.ALLOW_REMOTE_WRITE).result(LIMIT)
        receive_cq, initiator_cq = queues or (
            adapter.create_completion_queue(depths.receives),
            adapter.create_completion_queue(depths.sends),
        )
        if depths.by_default:
            qp = adapter.create_queue_pair(receive_cq, initiator_cq)
        else:
            qp = adapter.create_queue_pair(
                receive_cq,
                initiator_cq,
                receive_depth=depths.receives,
                initiator_depth=depths.sends,
            )
        lane = cls(
            qp=qp,
            receive_cq=receive_cq,
            initiator_cq=initiator_cq,
            depths=depths,
            region=region,
            outbox=memory[:size],
            inbox=memory[span : span + size],
            outgoing=region.sge(0, size),
            incoming=region.sge(span, size),
            inbox_address=region.address + span,
            connector=adapter.create_connector(),
        )
        for _ in range(depths.receives):
            qp.receive(lane.incoming)
        return lane

    def first_mark(self, count: int) -> int:
        """Give the first of the marks that the next `count` Writes carry in their last byte.

        Marks go from 1 to MARKS and begin again, across runs, so none of them is what the inbox
        holds already.
        """
        first = self.writes % MARKS + 1
        self.writes += count
        return first

    def _private_data(self) -> bytes:
        return _PRIVATE.pack(self.inbox_address, self.region.remote_token)

    def _learn(self) -> None:
        self.remote_address, self.remote_token = _PRIVATE.unpack_from(
            self.connector.get_private_data()
        )

    def connect(self, host: str, address: tuple[str, int]) -> None:
        """Active side."""
        self.connector.bind((host, 0))
        private = self._private_data()
        self.connector.connect(self.qp, address, private_data=private).result(LIMIT)
        self._learn()
        self.connector.complete_connect().result(LIMIT)

    def accept(self) -> None:
        """Passive side, once the connector has taken a request."""
        self._learn()
        self.connector.accept(self.qp, private_data=self._private_data()).result(LIMIT)


def check(results: Sequence[Result]) -> int:
    """Count completions; a failed one ends the benchmark with its status."""
    for result in results:
        if result.status:
            raise RuntimeError(f"a {result.request_type.name} ended with {result.status.name}")
    return len(results)
