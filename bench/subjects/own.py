# SPDX-License-Identifier: Apache-2.0
"""shmnd itself as a subject, with its loops in Python or in the compiled module."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..measure.environment import shared_memory_used
from ..measure.how import Wait
from ..measure.question import Kind, Question
from ..measure.reading import Reading, Stamps, counters, intervals, make_stamps
from ..workers.worker import CLIENT
from .subject import WorkerSubject

if TYPE_CHECKING:
    from ..loops.lane import Depths, Lane, Queues

HOST: Final = "127.0.0.1"
TRAFFIC: Final = frozenset(
    {Kind.PINGPONG, Kind.WRITE, Kind.READ, Kind.STREAM, Kind.WRITE_STREAM, Kind.READ_STREAM}
)

Latency = Callable[[Any, int, bool, "Stamps | None"], None]
"""So many rounds on this connection, True on the side that begins; their times if wanted."""
Rate = Callable[[int, bool], object]
"""So many messages on the connections it was made for; True on the side that sends."""


class Shmnd(WorkerSubject):
    """Two processes on the public interface, every message posted and reaped from Python."""

    name: ClassVar[str] = "shmnd"
    end: ClassVar[str] = ".subjects.own:ShmndEnd"
    apart: ClassVar[bool] = True
    engine: ClassVar[str] = "python"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__({"engine": self.engine, "namespace": namespace})

    def answers(self, question: Question) -> bool:
        """Return whether it is a question of traffic without idle connections."""
        return question.kind in TRAFFIC and not question.idle


class ShmndNative(Shmnd):
    """The same objects, with the loop over them in the compiled module."""

    name: ClassVar[str] = "shmnd native"
    engine: ClassVar[str] = "native"

    def missing(self) -> str | None:
        """Return why the compiled loops cannot be used; None when they can."""
        try:
            importlib.import_module("shmnd.ring.loops")
        except ImportError as exc:
            return f"no compiled loops: {exc}"
        return None


class ShmndUvloop(Shmnd):
    """The program that awaits its messages, in the event loop of uvloop."""

    name: ClassVar[str] = "shmnd uvloop"
    end: ClassVar[str] = ".subjects.own:UvloopEnd"
    apart: ClassVar[bool] = False
    needs: ClassVar[str] = "uvloop"
    install: ClassVar[str] = "pip install uvloop"

    def answers(self, question: Question) -> bool:
        """Return whether the question waits in an event loop."""
        return question.how.wait is Wait.ASYNCIO and super().answers(question)


class ShmndCrowd(Shmnd):
    """One connection among many idle ones on the same completion queue."""

    name: ClassVar[str] = "shmnd crowd"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__(namespace)
        self.bytes_per_idle: float | None = None
        """Shared memory that each idle connection added, once connected."""

    def answers(self, question: Question) -> bool:
        """Return whether the question has idle connections, so that no other subject answers it."""
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
        self._role = role
        self._engine: str = options["engine"]
        self.adapter = self.open(options["namespace"])
        self.listener: Any = None
        self._lanes: dict[Question, list[Any]] = {}
        self._validated: set[Question] = set()

    def open(self, namespace: str | None) -> Any:
        """Open an adapter."""
        import shmnd

        return shmnd.open_adapter(HOST, namespace=namespace)

    def describe(self) -> dict[str, str]:
        """Return the version."""
        return {"shmnd": str(importlib.import_module("shmnd").__version__)}

    def offer(self, question: Question) -> dict[str, Any]:
        """Listen, once for all questions, and return the address."""
        if self.listener is None:
            self.listener = self.listen()
        return {"address": self.listener.get_local_address()}

    def listen(self) -> Any:
        """Return a new listener."""
        listener = self.adapter.create_listener()
        listener.bind((HOST, 0))
        listener.listen()
        return listener

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Make the connections of a question: those in use, and idle ones around them."""
        from ..loops.lane import Depths, Queues

        depths = Depths.of(question)
        number = question.how.pairs + question.idle
        queues = Queues.create(self.adapter, depths, question.how.wait, number)
        lanes = self._lanes.setdefault(question, [])
        for place in range(number):
            lanes.append(self.connect(question, depths, queues, place, offer))

    def connect(
        self,
        question: Question,
        depths: Depths,
        queues: Queues,
        place: int,
        offer: dict[str, Any],
    ) -> Any:
        """Make one connection."""
        from ..loops.memory import LIMIT

        lane = self.lane(question, depths, queues, place)
        if self.listener is not None:
            self.listener.get_connection_request(lane.connector).result(LIMIT)
            lane.accept()
        else:
            host, port = offer["address"]
            lane.connect(HOST, (host, port))
        return lane

    def lane(self, question: Question, depths: Depths, queues: Queues, place: int) -> Any:
        """Make this side of a connection."""
        from ..loops.lane import Lane

        return Lane.create(self.adapter, question, depths, queues, place)

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Run the loop of a question, after a short run to warm up."""
        lanes, how = self._lanes[question], question.how
        if question.idle:
            lanes = [lanes[len(lanes) // 2]]
        if how.validate and question not in self._validated:
            from ..loops.validating import validate

            validate(lanes[0], question, self._role == CLIENT)
            self._validated.add(question)
        warmup = count // 20 + 1 if how.warmup is None else how.warmup
        if warmup:
            self._play(lanes, question, warmup, record)
        return self._play(lanes, question, count, record)

    def _play(self, lanes: Sequence[Lane], question: Question, count: int, record: bool) -> Reading:
        first = self._role == CLIENT
        if question.is_stream:
            rate = _rate_loop(question, lanes, self._engine)
            start = time.perf_counter()
            rate(count, first)
            return Reading(time.perf_counter() - start)
        paced = first and question.how.rate > 0
        stamps = make_stamps(count) if first and (record or paced) else None
        loop = (_paced if paced else _latency_loop)(question, self._engine)
        start = time.perf_counter()
        loop(lanes[0], count, first, stamps)
        seconds = time.perf_counter() - start
        if _has_one_more(question, self._engine):
            seconds *= count / (count + 1)
        if stamps is None or not record:
            return Reading(seconds)
        return Reading(seconds, counters(stamps[:count]) if paced else intervals(stamps))

    def close(self) -> None:
        """Close the adapter, and with it all that was made from it."""
        self._lanes.clear()
        if self.listener is not None:
            self.listener.close()
        self.adapter.close()


class UvloopEnd(ShmndEnd):
    """One end whose event loop is that of uvloop."""

    def open(self, namespace: str | None) -> Any:
        """Open an adapter, and choose the loop."""
        from ..loops import waking

        waking.new_loop = importlib.import_module("uvloop").new_event_loop
        return super().open(namespace)

    def describe(self) -> dict[str, str]:
        """Return the versions."""
        return {**super().describe(), "uvloop": importlib.import_module("uvloop").__version__}


_LATENCY: Final = {Kind.PINGPONG: "pingpong", Kind.WRITE: "write_pingpong", Kind.READ: "read"}
_MODULES: Final = {
    "python": ("latency", "flow"),
    "native": ("native", "native"),
    "nd1": ("nd1", "nd1"),
}
"""Where the loops of an engine are: those of latency, and those of streams."""


def _loops(question: Question, engine: str) -> Any:
    latency, streams = _MODULES[engine]
    if question.is_stream:
        return _loops_of(streams)
    in_loop = question.how.wait in (Wait.ASYNCIO, Wait.TASK)
    return _loops_of("waking" if in_loop else latency)


def _loops_of(module: str) -> Any:
    return importlib.import_module(f"..loops.{module}", __package__)


def _latency_loop(question: Question, engine: str) -> Latency:
    loop: Latency = getattr(_loops(question, engine), _LATENCY[question.kind])
    return loop


def _paced(question: Question, engine: str) -> Latency:
    play: Callable[[Any, int, float, Stamps | None], None]
    play = getattr(_loops(question, engine), f"paced_{_LATENCY[question.kind]}")

    def loop(lane: Any, count: int, first: bool, stamps: Stamps | None) -> None:
        play(lane, count, question.how.rate, stamps)

    return loop


def _has_one_more(question: Question, engine: str) -> bool:
    """Return whether a loop does one round more than it was asked for."""
    return engine != "native" and question.kind in (Kind.PINGPONG, Kind.WRITE)


def _rate_loop(question: Question, lanes: Sequence[Any], engine: str) -> Rate:
    how = question.how
    if how.burst:
        from ..loops import bursts

        play = bursts.compiled if engine == "native" else bursts.stream
        return lambda count, first: play(lanes[0], count, first, how.burst, how.batch)
    loops = _loops(question, engine)
    rate: Rate = (
        loops.stream(lanes, credit=how.credit)
        if question.kind is Kind.STREAM
        else loops.rdma(lanes, reading=question.kind is Kind.READ_STREAM)
    )
    return rate
