# SPDX-License-Identifier: Apache-2.0
"""shmnd itself as a subject, with its loops in Python or in the compiled module."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .environment import shared_memory_used
from .how import Wait
from .question import Kind, Question
from .reading import Reading, Stamps, intervals, make_stamps, tally
from .subject import WorkerSubject
from .worker import CLIENT

if TYPE_CHECKING:
    from shmnd import Adapter, Listener

    from .lane import Lane

HOST: Final = "127.0.0.1"
TRAFFIC: Final = frozenset(
    {Kind.PINGPONG, Kind.WRITE, Kind.READ, Kind.STREAM, Kind.WRITE_STREAM, Kind.READ_STREAM}
)

Latency = Callable[["Lane", int, bool, "Stamps | None"], None]
"""So many rounds on this connection, True on the side that begins; their times if wanted."""
Rate = Callable[["Lane", int, bool], None]
"""So many messages on this connection; True on the side that sends."""


class Shmnd(WorkerSubject):
    """Two processes on the public interface, every message posted and reaped from Python."""

    name: ClassVar[str] = "shmnd"
    end: ClassVar[str] = ".own:ShmndEnd"
    apart: ClassVar[bool] = True
    engine: ClassVar[str] = "python"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__({"engine": self.engine, "namespace": namespace})

    def answers(self, question: Question) -> bool:
        """Everything but what needs a crowd."""
        return question.kind in TRAFFIC and not question.idle


class ShmndNative(Shmnd):
    """The same objects, with the loop over them in the compiled module."""

    name: ClassVar[str] = "shmnd native"
    engine: ClassVar[str] = "native"

    def missing(self) -> str | None:
        """Look for the compiled loops."""
        try:
            importlib.import_module("shmnd.ring.loops")
        except ImportError as exc:
            return f"no compiled loops: {exc}"
        return None


class ShmndCrowd(Shmnd):
    """One connection among many idle ones on the same completion queue."""

    name: ClassVar[str] = "shmnd crowd"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__(namespace)
        self.bytes_per_idle: float | None = None
        """Shared memory that each idle connection added, once connected."""

    def answers(self, question: Question) -> bool:
        """Only what the others do not answer."""
        return question.idle > 0

    def connect(self, question: Question) -> None:
        """Connect, and see how much shared memory that took."""
        before = shared_memory_used()
        super().connect(question)
        if self.bytes_per_idle is None:
            self.bytes_per_idle = (shared_memory_used() - before) / question.idle


class ShmndEnd:
    """One of the two processes. Each question gets connections of its own."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        import shmnd

        self._role = role
        self._version = shmnd.__version__
        self._native = options["engine"] == "native"
        self._adapter: Adapter = shmnd.open_adapter(HOST, namespace=options["namespace"])
        self._listener: Listener | None = None
        self._lanes: dict[Question, list[Lane]] = {}
        self._validated: set[Question] = set()

    def describe(self) -> dict[str, str]:
        """Name the version."""
        return {"shmnd": self._version}

    def offer(self, question: Question) -> dict[str, Any]:
        """Listen, once for all questions."""
        if self._listener is None:
            self._listener = self._adapter.create_listener()
            self._listener.bind((HOST, 0))
            self._listener.listen()
        return {"address": self._listener.get_local_address()}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Make the connections of a question: those in use, and idle ones around them."""
        from .lane import LIMIT, Depths, Lane, Queues

        depths = Depths.of(question)
        number = question.how.pairs + question.idle
        queues = Queues.create(self._adapter, depths, question.how.wait, number)
        lanes = self._lanes.setdefault(question, [])
        for place in range(number):
            lane = Lane.create(self._adapter, question, depths, queues, place)
            if self._listener is not None:
                self._listener.get_connection_request(lane.connector).result(LIMIT)
                lane.accept()
            else:
                host, port = offer["address"]
                lane.connect(HOST, (host, port))
            lanes.append(lane)

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Run the loop of a question, after a short run to warm up."""
        lanes, how = self._lanes[question], question.how
        if question.idle:
            lanes = [lanes[len(lanes) // 2]]
        if how.validate and question not in self._validated:
            from .validating import validate

            validate(lanes[0], question, self._role == CLIENT)
            self._validated.add(question)
        warmup = count // 20 + 1 if how.warmup is None else how.warmup
        if warmup:
            self._play(lanes, question, warmup, record)
        return self._play(lanes, question, count, record)

    def _play(self, lanes: Sequence[Lane], question: Question, count: int, record: bool) -> Reading:
        first = self._role == CLIENT
        if question.is_stream:
            rate = _rate_loop(question, lanes, self._native)
            start = time.perf_counter()
            rate(lanes[0], count, first)
            return Reading(time.perf_counter() - start)
        paced = first and question.how.rate > 0
        stamps = make_stamps(count) if first and (record or paced) else None
        loop = _paced(question) if paced else _latency_loop(question, self._native)
        start = time.perf_counter()
        loop(lanes[0], count, first, stamps)
        seconds = time.perf_counter() - start
        if _has_one_more(question, self._native):
            seconds *= count / (count + 1)
        if stamps is None or not record:
            return Reading(seconds)
        return Reading(seconds, tally(stamps) if paced else intervals(stamps))

    def close(self) -> None:
        """Close the adapter, and with it all that was made from it."""
        self._lanes.clear()
        if self._listener is not None:
            self._listener.close()
        self._adapter.close()


def _latency_loop(question: Question, native: bool) -> Latency:
    if question.how.wait is Wait.ASYNCIO:
        from .waking import pingpong

        return pingpong
    loops: Any = importlib.import_module(".native" if native else ".latency", __package__)
    table: Mapping[Kind, Latency] = {
        Kind.PINGPONG: loops.pingpong,
        Kind.WRITE: loops.write_pingpong,
        Kind.READ: loops.read,
    }
    return table[question.kind]


def _has_one_more(question: Question, native: bool) -> bool:
    """Tell whether a loop does one round more than it is told, for those it is told to be whole."""
    return not native and question.kind in (Kind.PINGPONG, Kind.WRITE)


_PACED: Final = {
    Kind.PINGPONG: "paced_pingpong",
    Kind.WRITE: "paced_write_pingpong",
    Kind.READ: "paced_read",
}


def _paced(question: Question) -> Latency:
    asleep = question.how.wait is Wait.ASYNCIO
    loops: Any = importlib.import_module(".waking" if asleep else ".latency", __package__)
    play: Callable[[Lane, int, float, Stamps | None], None] = getattr(loops, _PACED[question.kind])

    def loop(lane: Lane, count: int, first: bool, stamps: Stamps | None) -> None:
        play(lane, count, question.how.rate, stamps)

    return loop


def _rate_loop(question: Question, lanes: Sequence[Lane], native: bool) -> Rate:
    from . import bandwidth, flow

    how = question.how
    if how.burst:
        from . import bursts

        play = bursts.compiled if native else bursts.stream
        return lambda lane, count, first: play(lane, count, first, how.burst, how.batch)
    if native:
        from . import native as compiled

        if question.kind is Kind.STREAM and how.credit:
            return lambda lane, count, first: compiled.stream(lane, count, first, credit=True)
        loops: Any = compiled
    elif question.kind is Kind.STREAM and (how.credit or len(lanes) > 1):
        return lambda _, count, first: flow.stream(lanes, count, first, credit=how.credit)
    elif len(lanes) > 1:
        reading = question.kind is Kind.READ_STREAM
        return lambda _, count, first: flow.rdma(lanes, count, first, reading=reading)
    else:
        loops = bandwidth
    table: Mapping[Kind, Rate] = {
        Kind.STREAM: loops.stream,
        Kind.WRITE_STREAM: loops.write_stream,
        Kind.READ_STREAM: loops.read_stream,
    }
    return table[question.kind]
