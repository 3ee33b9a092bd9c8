# SPDX-License-Identifier: Apache-2.0
"""shmnd itself as a subject, with its loops in Python or in the compiled module."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .environment import shared_memory_used
from .question import Kind, Question
from .subject import WorkerSubject
from .worker import CLIENT

if TYPE_CHECKING:
    from shmnd import Adapter, Listener

    from .lane import Lane

HOST = "127.0.0.1"


Loop = Callable[["Lane", int, bool], None]
"""A benchmark's loop: so many rounds on this connection; True on the side that begins."""


class Shmnd(WorkerSubject):
    """Two processes on the public interface, every message posted and reaped from Python."""

    name: ClassVar[str] = "shmnd"
    end: ClassVar[str] = ".own:ShmndEnd"
    engine: ClassVar[str] = "python"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__({"engine": self.engine, "namespace": namespace})

    def answers(self, question: Question) -> bool:
        """Everything but what needs a crowd."""
        return not question.idle


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
    """One of the two processes. Each question gets a connection of its own."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        import shmnd

        self._role = role
        self._version = shmnd.__version__
        self._loops = _loops(options["engine"])
        self._adapter: Adapter = shmnd.open_adapter(HOST, namespace=options["namespace"])
        self._listener: Listener | None = None
        self._lanes: dict[Question, list[Lane]] = {}

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
        """Make the connections of a question: the idle ones around the one that is measured."""
        from .lane import LIMIT, Depths, Lane

        depths = Depths.of(question)
        queues = None
        if question.idle:
            queues = (
                self._adapter.create_completion_queue(depths.receives * (question.idle + 1)),
                self._adapter.create_completion_queue(depths.sends),
            )
        lanes = self._lanes.setdefault(question, [])
        for _ in range(question.idle + 1):
            lane = Lane.create(self._adapter, question.size, depths, queues)
            if self._listener is not None:
                self._listener.get_connection_request(lane.connector).result(LIMIT)
                lane.accept()
            else:
                host, port = offer["address"]
                lane.connect(HOST, (host, port))
            lanes.append(lane)

    def run(self, question: Question, count: int) -> float:
        """Run the loop of a question, after a short run to warm up."""
        lanes = self._lanes[question]
        lane = lanes[len(lanes) // 2]
        loop = self._loops[question.kind]
        first = self._role == CLIENT
        loop(lane, count // 20 + 1, first)
        start = time.perf_counter()
        loop(lane, count, first)
        return time.perf_counter() - start

    def close(self) -> None:
        """Close the adapter, and with it all that was made from it."""
        self._lanes.clear()
        if self._listener is not None:
            self._listener.close()
        self._adapter.close()


def _loops(engine: str) -> Mapping[Kind, Loop]:
    if engine == "native":
        from . import native

        return native.LOOPS
    from . import bandwidth, latency

    return {
        Kind.PINGPONG: latency.pingpong,
        Kind.WRITE: latency.write_pingpong,
        Kind.STREAM: bandwidth.stream,
    }
