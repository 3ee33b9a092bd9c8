# SPDX-License-Identifier: Apache-2.0
"""One connection of version 1 with all that a benchmark's loop needs at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import shmnd.nd1 as nd
from shmnd import RequestType

from ..measure.question import Kind
from .lane import MARKS, check
from .memory import LIMIT, allocate, span_of

if TYPE_CHECKING:
    import numpy

    from ..measure.question import Question
    from .lane import Depths, Queues

_RIGHTS: Final = 0x18
_READ_LIMIT: Final = 16
_REQUESTS: Final = {
    Kind.WRITE: RequestType.WRITE,
    Kind.WRITE_STREAM: RequestType.WRITE,
    Kind.READ: RequestType.READ,
    Kind.READ_STREAM: RequestType.READ,
}


class Ticket(nd.Result):
    """The caller's own result object, with the request that it was passed to.

    Version 1 reports no more of a completion than which object came back.
    """

    __slots__ = ("queue_pair_context", "request_type")

    def __init__(self, place: int, request_type: RequestType) -> None:
        super().__init__()
        self.queue_pair_context = place
        self.request_type = request_type


class Nd1Lane:
    """An endpoint, its two completion queues, and a window for the peer."""

    def __init__(
        self, adapter: nd.Adapter, question: Question, depths: Depths, queues: Queues, place: int
    ) -> None:
        size, span, how = question.size, span_of(question.size), question.how
        self.depths = depths
        inbound: Any = queues.receive  # made by this adapter, so of version 1
        outbound: Any = queues.initiator
        self.receive_cq, self.initiator_cq = inbound, outbound
        self.arrived: Any = queues.arrived
        memory = allocate(adapter, 2 * span, how.memory)
        self.handle, registered = adapter.register_memory(memory)
        registered.result()
        base = int(memory.ctypes.data)
        self.inbox: numpy.ndarray = memory[span : span + size]
        self.outbox: numpy.ndarray = memory[:size]
        inline = size <= how.inline and question.kind not in (Kind.READ, Kind.READ_STREAM)
        self.outgoing = nd.Sge(base, size, None if inline and size else self.handle)
        self.incoming = nd.Sge(base + span, size, self.handle)
        self.connector = adapter.create_connector()
        self.endpoint = self.connector.create_endpoint(
            *(inbound, outbound),
            *(depths.receives, depths.sends, 1, 1),
            *(_READ_LIMIT, _READ_LIMIT),
        )
        self.window = adapter.create_memory_window()
        self.place = place
        self.sent = self.ticket(RequestType.SEND)
        request = _REQUESTS.get(question.kind, RequestType.SEND)
        self.tickets = [self.ticket(request) for _ in range(depths.sends)]
        """One for each request that may be outstanding."""
        self.target = nd.MwDescriptor(0, 0, 0)
        self._inbox = base + span, size
        self.writes = 0
        for _ in range(depths.receives):
            self.receive(self.incoming)

    def ticket(self, request_type: RequestType) -> Ticket:
        """Make a result object of this lane."""
        return Ticket(self.place, request_type)

    def connect(self, _host: str, address: tuple[str, int]) -> None:
        """Connect. For the active side."""
        self.connector.connect(self.endpoint, address).result(LIMIT)
        self.connector.complete_connect().result(LIMIT)
        learned = b""
        for piece in self._pieces():
            self._say(piece)
            learned += self._hear()
        self._say(b"")
        self.target = nd.MwDescriptor.unpack(learned)

    def accept(self) -> None:
        """Accept, once the connector has taken a request. For the passive side."""
        self.connector.accept(self.endpoint).result(LIMIT)
        learned = b""
        for piece in self._pieces():
            learned += self._hear()
            self._say(piece)
        self._hear()
        self.target = nd.MwDescriptor.unpack(learned)

    # The two sides send each other where their inboxes are. All Receives are in the inbox and are
    # as long as the messages, so a descriptor travels in pieces, and strictly in turns: a piece
    # that arrived before its predecessor was read would overwrite it, and a piece that is placed
    # late would overwrite what the peer has written into the inbox. The active side's empty
    # message says that it has read the last piece.

    def _pieces(self) -> list[bytes]:
        """Bind the inbox, and return its descriptor in pieces that the peer's Receives take."""
        self.endpoint.bind(self.sent, self.handle, self.window, *self._inbox, _RIGHTS)
        check(self.initiator_cq.wait(1))
        descriptor = nd.MwDescriptor(*self._inbox, self.window._core.remote_token).pack()
        length = len(self.inbox)
        return [descriptor[at : at + length] for at in range(0, len(descriptor), length)]

    def _say(self, piece: bytes) -> None:
        self.send(nd.Sge(piece, len(piece), None))
        check(self.initiator_cq.wait(1))

    def _hear(self) -> bytes:
        (result,) = self.receive_cq.wait(1)
        check([result])
        piece: bytes = self.inbox[: result.bytes_transferred].tobytes()
        self.endpoint.receive(result, self.incoming)
        return piece

    def first_mark(self, count: int) -> int:
        """Return the first of the marks that the next `count` Writes carry in their last byte."""
        first = self.writes % MARKS + 1
        self.writes += count
        return first

    # -- off the clock: one request at a time, as a lane of version 2 has it --

    remote_address = remote_token = 0

    @property
    def qp(self) -> Nd1Lane:
        """Where requests are posted."""
        return self

    def send(self, sge: Any) -> None:
        """Send one message."""
        self.endpoint.send(self.sent, sge)

    def receive(self, sge: Any) -> None:
        """Post a Receive."""
        self.endpoint.receive(self.ticket(RequestType.RECEIVE), sge)

    def write(self, sge: Any, _address: int, _token: int) -> None:
        """Write into the peer's window, which is its inbox."""
        self.endpoint.write(self.sent, sge, self.target, 0)

    def read(self, sge: Any, _address: int, _token: int) -> None:
        """Read from the peer's window."""
        self.endpoint.read(self.sent, sge, self.target, 0)
