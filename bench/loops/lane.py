# SPDX-License-Identifier: Apache-2.0
"""One connection of shmnd with all that a benchmark's loop needs at hand.

The set-up is an ordinary program on the public interface: register, create the queues, post the
first Receives, then connect; the private data carries where the peer may write.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy

import shmnd

from ..measure.how import HEADER, Wait
from ..measure.question import Kind, Question
from .memory import LIMIT, pieces, places

if TYPE_CHECKING:
    from shmnd import Adapter, CompletionQueue, Connector, QueuePair, Result, Sge

    from .memory import Elements, Place
    from .nd1_lane import Ticket

MARKS = 255
"""How many marks there are for Writes."""

_READ_LIMITS = 16, 16
_SENDS = Kind.PINGPONG, Kind.STREAM
_PRIVATE = struct.Struct("<QI")  # address and token of the inbox


@dataclasses.dataclass(frozen=True, slots=True)
class Depths:
    """How much a lane has in flight."""

    receives: int
    sends: int
    by_default: bool = False
    """Leave the depths to the adapter, and use no more than `receives` and `sends`."""

    @classmethod
    def of(cls, question: Question) -> Depths:
        """Return the depths for a question: few for a ping-pong; for a stream, so many that
        neither side waits for the other to post.
        """
        if not question.is_stream:
            depths = cls(8, 8, by_default=bool(question.idle))
        else:
            depths = cls(1024, 512) if question.size < 1024 else cls(32, 16)
        asked = question.how
        return dataclasses.replace(
            depths,
            receives=asked.receives or depths.receives,
            sends=asked.sends or depths.sends,
        )

    def of_queue_pair(self, inline: int) -> dict[str, int]:
        """Return the sizes that a queue pair is created with, unless the adapter chooses them."""
        if self.by_default:
            return {}
        return {
            "receive_depth": self.receives,
            "initiator_depth": self.sends,
            "inline_size": inline,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Queues:
    """The two completion queues of a lane; several lanes may share them."""

    receive: CompletionQueue
    initiator: CompletionQueue
    arrived: Callable[[int], list[Result]]
    """Wait for Receives, in the manner that was asked for."""
    arrival: Callable[[], Result]
    """Wait for one Receive in the same manner."""

    @classmethod
    def create(cls, adapter: Adapter, depths: Depths, wait: Wait, lanes: int = 1) -> Queues:
        """Make queues that hold all that `lanes` lanes may have in flight."""
        receive = adapter.create_completion_queue(depths.receives * lanes)
        initiator = adapter.create_completion_queue(depths.sends * lanes)
        if wait in _SPINS:
            receive.spin = initiator.spin = _SPINS[wait]
        if wait is Wait.NOTIFY:
            arrived = _notified(receive)
            return cls(receive, initiator, arrived, lambda: arrived(1)[0])
        return cls(receive, initiator, receive.wait, receive.wait_one)


_SPINS = {Wait.POLL: 3600.0, Wait.EVENT: 0.0, Wait.ASYNCIO: 0.0}


def _notified(queue: CompletionQueue) -> Callable[[int], list[Result]]:
    """Return a way to wait that asks for a Notify and sleeps on it, polling before it sleeps."""
    notification: Any = None

    def arrived(most: int) -> list[Result]:
        nonlocal notification
        while not (results := queue.get_results(most)):
            if notification is None or notification.done():
                notification = queue.notify()  # and poll again: a result may precede it
            else:
                notification.result()
        return results

    return arrived


@dataclasses.dataclass(slots=True)
class Lane:
    """A queue pair, its two completion queues, and registered memory on both sides."""

    qp: QueuePair
    receive_cq: CompletionQueue
    initiator_cq: CompletionQueue
    arrived: Callable[[int], list[Result]]
    arrival: Callable[[], Result]
    flags: int
    """Of each Send and Write: INLINE for messages as short as that was asked for, else none."""
    send: Callable[[Elements], None]
    write: Callable[[Elements, int, int], None]
    depths: Depths
    places: tuple[Place, Place]
    outbox: numpy.ndarray
    inbox: numpy.ndarray
    outgoing: Elements
    incoming: Elements
    connector: Connector
    remote_address: int = 0
    remote_token: int = 0
    writes: int = 0

    @classmethod
    def create(
        cls,
        adapter: Adapter,
        question: Question,
        depths: Depths,
        queues: Queues,
        place: int = 0,
    ) -> Lane:
        """Make all objects and post the first Receives; results carry the `place` of the lane."""
        size, how = question.size, question.how
        if how.is_mixed and (question.kind not in _SENDS or size <= HEADER):
            raise ValueError(f"mixed memory is for Sends of more than {HEADER} bytes")
        outbox, inbox = places(adapter, size, how.memory, how.into or how.memory)
        qp = adapter.create_queue_pair(
            queues.receive,
            queues.initiator,
            context=place,
            max_receive_sge=pieces(inbox),
            max_initiator_sge=pieces(outbox),
            **depths.of_queue_pair(how.inline),
        )
        inline = 0 < size <= how.inline
        lane = cls(
            qp=qp,
            receive_cq=queues.receive,
            initiator_cq=queues.initiator,
            arrived=queues.arrived,
            arrival=queues.arrival,
            flags=shmnd.OpFlag.INLINE if inline else 0,
            send=_send_inline(qp) if inline else qp.send,
            write=_write_inline(qp) if inline else qp.write,
            depths=depths,
            places=(outbox, inbox),
            outbox=outbox.data,
            inbox=inbox.data,
            outgoing=outbox.elements,
            incoming=inbox.elements,
            connector=adapter.create_connector(),
        )
        for _ in range(depths.receives):
            qp.receive(lane.incoming)
        return lane

    def whole(self) -> tuple[Sge, Sge]:
        """Return the elements to send and to receive, of memory in one piece."""
        if isinstance(self.outgoing, tuple) or isinstance(self.incoming, tuple):
            raise TypeError("the compiled loops take one element a message")
        return self.outgoing, self.incoming

    def first_mark(self, count: int) -> int:
        """Return the first of the marks that the next `count` Writes carry in their last byte.

        Marks go from 1 to MARKS and begin again, across runs, so none of them is what the inbox
        holds already.
        """
        first = self.writes % MARKS + 1
        self.writes += count
        return first

    def _private_data(self) -> bytes:
        return _PRIVATE.pack(self.places[1].address, self.places[1].region.remote_token)

    def _learn(self) -> None:
        self.remote_address, self.remote_token = _PRIVATE.unpack_from(
            self.connector.get_private_data()
        )

    def connect(self, host: str, address: tuple[str, int]) -> None:
        """Connect. For the active side."""
        self.connector.bind((host, 0))
        private = self._private_data()
        self.connector.connect(self.qp, address, *_READ_LIMITS, private).result(LIMIT)
        self._learn()
        self.connector.complete_connect().result(LIMIT)

    def accept(self) -> None:
        """Accept, once the connector has taken a request. For the passive side."""
        self._learn()
        self.connector.accept(self.qp, *_READ_LIMITS, self._private_data()).result(LIMIT)


def _send_inline(qp: QueuePair) -> Callable[[Elements], None]:
    send, inline = qp.send, shmnd.OpFlag.INLINE

    def post(sge: Elements) -> None:
        send(sge, flags=inline)

    return post


def _write_inline(qp: QueuePair) -> Callable[[Elements, int, int], None]:
    write, inline = qp.write, shmnd.OpFlag.INLINE

    def post(sge: Elements, address: int, token: int) -> None:
        write(sge, address, token, flags=inline)

    return post


def check(results: Sequence[Result | Ticket]) -> int:
    """Return the number of completions; raise RuntimeError for a failed one."""
    for result in results:
        if result.status:
            raise RuntimeError(f"a {result.request_type.name} ended with {result.status.name}")
    return len(results)
