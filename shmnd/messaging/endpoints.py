# SPDX-License-Identifier: Apache-2.0
"""The objects of a connection that carries messages, and the adapter that connections share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmnd.common.arguments import within
from shmnd.common.weak import Living
from shmnd.messaging.fragments import MOST_DEPTH, EndTerms
from shmnd.messaging.messages import Messages
from shmnd.status import MrFlag

if TYPE_CHECKING:
    from shmnd.adapter import Adapter
    from shmnd.completion_queue import CompletionQueue
    from shmnd.connector import Connector
    from shmnd.memory_region import MemoryRegion
    from shmnd.overlapped import Overlapped
    from shmnd.queue_pair import QueuePair
    from shmnd.ring.shared_memory.array import SharedArray

__all__ = ["READS", "Arrival", "Ends", "Offer", "Plan", "SharedAdapter"]

READS: Final = 16
"""How many Reads of either side may be under way at once."""
_RIGHTS: Final = MrFlag.ALLOW_LOCAL_WRITE | MrFlag.ALLOW_REMOTE_READ | MrFlag.ALLOW_REMOTE_WRITE
_LEAST: Final = 4096
"""The fewest bytes of the memory of a connection."""


class SharedAdapter:
    """An adapter that is closed with its last user.

    It holds its users weakly, so that a user whose construction is interrupted does not count.
    """

    def __init__(self, adapter: Adapter) -> None:
        self.adapter: Final = adapter
        self._users: Final[Living[object]] = Living()

    def take(self, user: object) -> None:
        """Note a user. Harmless twice."""
        self._users.add(user)

    def give_back(self, user: object) -> None:
        """Forget a user; the last one closes the adapter. Harmless twice."""
        self._users.discard(user)
        if not self._users:
            self.adapter.close()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a program asks of its connections."""

    nbytes: int
    depth: int

    @classmethod
    def checked(cls, nbytes: object, depth: object, call: str) -> Plan:
        """Return a plan with the program's numbers, after a check of each."""
        return cls(
            within(call, 0, "nbytes", nbytes, _LEAST, 1 << 40),
            within(call, 0, "depth", depth, 1, MOST_DEPTH),
        )


@dataclass(slots=True)
class Ends:
    """The objects of one end, and `theirs`: the terms that the peer sent."""

    qp: QueuePair
    cq: CompletionQueue
    receive_cq: CompletionQueue
    connector: Connector
    region: MemoryRegion
    memory: SharedArray
    messages: Messages
    theirs: EndTerms

    @classmethod
    def made(cls, adapter: Adapter, connector: Connector, plan: Plan) -> Ends:
        """Return the ends with all objects made and the receives posted."""
        cq = adapter.create_completion_queue(2 * plan.depth)
        receive_cq = adapter.create_completion_queue(2 * plan.depth)
        messages = Messages(adapter, plan.nbytes, plan.depth)
        qp = adapter.create_queue_pair(
            receive_cq,
            cq,
            receive_depth=messages.receives + plan.depth,
            initiator_depth=2 * plan.depth + 4,
            max_receive_sge=4,
            max_initiator_sge=4,
            inline_size=adapter.query().max_inline_data_size,
        )
        memory = adapter.allocate(plan.nbytes)
        region = adapter.create_memory_region()
        region.register(memory, _RIGHTS).result()
        messages.post(qp, receive_cq)
        return cls(qp, cq, receive_cq, connector, region, memory, messages, _NO_TERMS)

    def terms(self) -> bytes:
        """Return the private data for the peer."""
        region, messages = self.region, self.messages
        return EndTerms(
            messages.depth, messages.piece, region.address, region.length, region.remote_token
        ).pack()

    def agree(self, theirs: EndTerms) -> None:
        """Take the terms that the peer sent."""
        self.theirs = theirs
        self.messages.agree(theirs.depth, theirs.piece)

    def close(self) -> None:
        """Close the objects made for a connection that failed."""
        self.connector.close()
        self.close_queues()

    def close_queues(self) -> None:
        """Close all objects but the connector."""
        self.qp.close()
        self.messages.close()
        self.region.close()
        self.receive_cq.close()
        self.cq.close()


class Offer(NamedTuple):
    """A connector that waits for a request, or holds one."""

    connector: Connector
    overlapped: Overlapped


class Arrival(NamedTuple):
    """An accepted request, whose peer has to complete the connection by `until`.

    `made` holds the connection that was made of it, until a call returns that.
    """

    ends: Ends
    overlapped: Overlapped
    until: float
    made: list[Any]

    def is_over(self, now: float) -> bool:
        """Return whether the peer has completed the connection, or failed to."""
        return self.overlapped._over() or now >= self.until

    def close(self) -> None:
        """End the connection."""
        (self.made[0] if self.made else self.ends).close()


_NO_TERMS: Final = EndTerms(1, 1024, 0, 0, 0)
