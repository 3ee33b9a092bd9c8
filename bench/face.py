# SPDX-License-Identifier: Apache-2.0
"""Version 1 of the interface as a subject: the same traffic through `shmnd.nd1`.

The loops are those of `latency` and `bandwidth`, turn by turn, so that what they take longer is
what the face costs. A result object of the caller's goes with each request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice, repeat
from typing import TYPE_CHECKING, Any, ClassVar, Final

import shmnd.nd1 as nd

from .how import USUAL
from .lane import LIMIT, MARKS, Depths
from .latency import rounds
from .own import HOST, Shmnd
from .question import Kind, Question
from .reading import Reading, Stamps, intervals, make_stamps
from .worker import CLIENT

if TYPE_CHECKING:
    import numpy

_BATCH: Final = 256
_RIGHTS: Final = 0x18
_READ_LIMIT: Final = 16
_LINE: Final = 64


class ShmndFace(Shmnd):
    """Two processes on version 1, every message posted and reaped from Python."""

    name: ClassVar[str] = "shmnd nd1"
    end: ClassVar[str] = ".face:FaceEnd"

    def answers(self, question: Question) -> bool:
        """What version 1 does as version 2 does: no mode of waiting is its own."""
        return question.kind in _LOOPS and question.how == USUAL and not question.idle


class FaceLane:
    """An endpoint, its two completion queues, and a window for the peer."""

    def __init__(self, adapter: nd.Adapter, question: Question) -> None:
        depths = Depths.of(question)
        size = question.size
        span = -(-max(size, 1) // _LINE) * _LINE
        self.depths = depths
        self.receive_cq = adapter.create_completion_queue(depths.receives)
        self.initiator_cq = adapter.create_completion_queue(depths.sends)
        memory = adapter.allocate(2 * span)
        memory[:] = 0
        self.handle, registered = adapter.register_memory(memory)
        registered.result(LIMIT)
        base = int(memory.ctypes.data)
        self.inbox: numpy.ndarray = memory[span : span + size]
        self.outbox: numpy.ndarray = memory[:size]
        self.outgoing = nd.Sge(base, size, self.handle)
        self.incoming = nd.Sge(base + span, size, self.handle)
        self.connector = adapter.create_connector()
        self.endpoint = self.connector.create_endpoint(
            *(self.receive_cq, self.initiator_cq),
            *(depths.receives, depths.sends, 1, 1),
            *(_READ_LIMIT, _READ_LIMIT),
        )
        self.window = adapter.create_memory_window()
        self.sent = nd.Result()
        self.target = nd.MwDescriptor(0, 0, 0)
        self._inbox = base + span, size
        self.writes = 0
        for _ in range(depths.receives):
            self.endpoint.receive(nd.Result(), self.incoming)

    def meet(self) -> None:
        """Once connected: bind the inbox, tell the peer, and learn of its own."""
        self.endpoint.bind(self.sent, self.handle, self.window, *self._inbox, _RIGHTS)
        _check(self.initiator_cq.wait(1))
        # The Receives are as long as the messages; the descriptor travels by itself.
        descriptor = nd.MwDescriptor(*self._inbox, self.window.core.remote_token).pack()
        for place in range(0, len(descriptor), self.outgoing.length):
            piece = descriptor[place : place + self.outgoing.length]
            self.endpoint.send(self.sent, nd.Sge(piece, len(piece), None))
            _check(self.initiator_cq.wait(1))
        learned = b""
        while len(learned) < len(descriptor):
            (result,) = self.receive_cq.wait(1)
            learned += self.inbox[: result.bytes_transferred].tobytes()
            self.endpoint.receive(result, self.incoming)
        self.target = nd.MwDescriptor.unpack(learned)

    def first_mark(self, count: int) -> int:
        """Give the first of the marks that the next `count` Writes carry in their last byte."""
        first = self.writes % MARKS + 1
        self.writes += count
        return first


class FaceEnd:
    """One of the two processes."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._role = role
        self._adapter = nd.Provider().open_adapter(HOST, namespace=options["namespace"])
        self._listen: nd.Listen | None = None
        self._lanes: dict[Question, FaceLane] = {}

    def describe(self) -> dict[str, str]:
        """It is of the same version as the rest."""
        return {}

    def offer(self, question: Question) -> dict[str, Any]:
        """Listen, once for all questions."""
        if self._listen is None:
            self._listen = self._adapter.listen()
        return {"address": self._listen.get_local_address()}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Make the connection of a question."""
        lane = self._lanes[question] = FaceLane(self._adapter, question)
        if self._listen is not None:
            self._listen.get_connection_request(lane.connector).result(LIMIT)
            lane.connector.accept(lane.endpoint).result(LIMIT)
        else:
            host, port = offer["address"]
            lane.connector.connect(lane.endpoint, (host, port)).result(LIMIT)
            lane.connector.complete_connect().result(LIMIT)
        lane.meet()

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Run the loop of a question, after a short run to warm up."""
        lane, loop, first = self._lanes[question], _LOOPS[question.kind], self._role == CLIENT
        loop(lane, count // 20 + 1, first, None)
        recorded = record and first and not question.is_stream
        stamps = make_stamps(count) if recorded else None
        start = time.perf_counter()
        loop(lane, count, first, stamps)
        seconds = time.perf_counter() - start
        if question.kind in (Kind.PINGPONG, Kind.WRITE):
            seconds *= count / (count + 1)
        return Reading(seconds) if stamps is None else Reading(seconds, intervals(stamps))

    def close(self) -> None:
        """Close the adapter, and with it all that was made from it."""
        self._lanes.clear()
        self._adapter.close()


# -- the loops: as in `latency` and `bandwidth` --


def _check(results: Sequence[nd.Result]) -> int:
    for result in results:
        if result.status:
            raise RuntimeError(f"a request ended with {result.status.name}")
    return len(results)


def _reap(lane: FaceLane, count: int) -> None:
    while count > 0:
        count -= _check(lane.initiator_cq.wait(count))


def _pingpong(lane: FaceLane, count: int, first: bool, stamps: Stamps | None) -> None:
    send, receive = lane.endpoint.send, lane.endpoint.receive
    arrived, done = lane.receive_cq.wait, lane.initiator_cq.get_results
    outgoing, incoming, sent = lane.outgoing, lane.incoming, lane.sent
    if first:
        send(sent, outgoing)
        _reap(lane, 1)
    for _ in rounds(count, stamps) if first else repeat(None, count + 1):
        (result,) = arrived(1)
        if result.status:
            _check([result])
        send(sent, outgoing)
        receive(result, incoming)
        if not _check(done(1)):
            _reap(lane, 1)
    if first:
        (result,) = arrived(1)
        receive(result, incoming)


def _write_pingpong(lane: FaceLane, count: int, first: bool, stamps: Stamps | None) -> None:
    write, written = lane.endpoint.write, lane.initiator_cq.get_results
    outgoing, target, sent = lane.outgoing, lane.target, lane.sent
    inbox, outbox = lane.inbox.data, lane.outbox.data
    last = len(inbox) - 1
    start = lane.first_mark(count + 1) - 1
    marks = islice(cycle(range(1, MARKS + 1)), start, start + count + 1)
    if first:
        mark = next(marks)
        outbox[last] = mark
        write(sent, outgoing, target, 0)
        for following, _ in zip(marks, rounds(count, stamps), strict=True):
            if not _check(written(1)):
                _reap(lane, 1)
            while inbox[last] != mark:
                pass
            mark = outbox[last] = following
            write(sent, outgoing, target, 0)
        _reap(lane, 1)
        while inbox[last] != mark:
            pass
    else:
        for mark in marks:
            while inbox[last] != mark:
                pass
            outbox[last] = mark
            write(sent, outgoing, target, 0)
            if not _check(written(1)):
                _reap(lane, 1)


def _read(lane: FaceLane, count: int, first: bool, stamps: Stamps | None) -> None:
    if not first:
        _receive_acknowledgement(lane)
        return
    read, done = lane.endpoint.read, lane.initiator_cq.get_results
    incoming, target, sent = lane.outgoing, lane.target, lane.sent
    for _ in rounds(count, stamps):
        read(sent, incoming, target, 0)
        if not _check(done(1)):
            _reap(lane, 1)
    _send_acknowledgement(lane)


def _stream(lane: FaceLane, count: int, first: bool, _: Stamps | None) -> None:
    endpoint = lane.endpoint
    if first:
        send, outgoing, result = endpoint.send, lane.outgoing, lane.sent
        sent = lane.initiator_cq.wait
        room, left = lane.depths.sends, count
        while left:
            burst = min(room, left)
            for _ in repeat(None, burst):
                send(result, outgoing)
            left -= burst
            room += _check(sent(_BATCH)) - burst
        while room < lane.depths.sends:
            room += _check(sent(_BATCH))
        _receive_acknowledgement(lane)
    else:
        receive, arrived, incoming = endpoint.receive, lane.receive_cq.wait, lane.incoming
        left = count
        while left:
            results = arrived(min(left, _BATCH))
            left -= _check(results)
            for result in results:
                receive(result, incoming)
        _send_acknowledgement(lane)


def _receive_acknowledgement(lane: FaceLane) -> None:
    (result,) = lane.receive_cq.wait(1)
    lane.endpoint.receive(result, lane.incoming)


def _send_acknowledgement(lane: FaceLane) -> None:
    lane.endpoint.send(lane.sent, None)
    _reap(lane, 1)


_LOOPS: Final[dict[Kind, Callable[[FaceLane, int, bool, Stamps | None], None]]] = {
    Kind.PINGPONG: _pingpong,
    Kind.WRITE: _write_pingpong,
    Kind.READ: _read,
    Kind.STREAM: _stream,
}
