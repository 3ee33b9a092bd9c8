# SPDX-License-Identifier: Apache-2.0
"""All to all: several processes, a connection between every two of them."""

from __future__ import annotations

import os
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

from ..measure.how import Wait
from ..measure.question import Kind, Question
from ..measure.reading import Reading, intervals, make_stamps, ticks
from ..workers.worker import CLIENT
from .own import HOST
from .subject import WorkerSubject

if TYPE_CHECKING:
    from ..loops.lane import Lane, Queues
    from ..workers.harness import Stage, Workers


class Mesh(WorkerSubject):
    """So many processes; the first keeps the time."""

    end: ClassVar[str] = ".subjects.mesh:MeshEnd"

    def __init__(self, processes: int, namespace: str | None = None) -> None:
        super().__init__({"namespace": namespace})
        self._processes = processes
        self.name = f"shmnd {processes} processes"  # type: ignore[misc]  # one class, many sizes

    def launch(self, stage: Stage) -> Workers:
        """Start all processes; those beyond the pinned ones run where the kernel likes."""
        from ..workers.harness import Workers

        return Workers.start(stage, roles=range(self._processes))

    def connect(self, question: Question) -> None:
        """Let each process meet each other one."""
        if question not in self._connected:
            self._running().meet(question)
            self._connected.add(question)

    def answers(self, question: Question) -> bool:
        """Return True for all to all among as many processes as these are."""
        return question.kind is Kind.MESH and question.how.processes == self._processes


class MeshEnd:
    """One process: it connects to all before it and is connected to by all behind it."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        import shmnd

        self._role = role
        self._version = shmnd.__version__
        self._adapter = shmnd.open_adapter(HOST, namespace=options["namespace"])
        self._listener = self._adapter.create_listener()
        self._listener.bind((HOST, 0))
        self._listener.listen()
        self._lanes: dict[Question, list[Lane]] = {}
        self._queues: dict[Question, Queues] = {}
        self._early: dict[Question, list[int]] = {}
        """Messages of each lane that came before their step; they may be of the next run."""

    def describe(self) -> dict[str, str]:
        """Return the version."""
        return {"shmnd": self._version}

    def offer(self, question: Question) -> dict[str, Any]:
        """Return where this process listens."""
        return {"address": self._listener.get_local_address()}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Connect to those before this one in their order, then accept the others."""
        from ..loops.lane import Depths, Lane, Queues
        from ..loops.memory import LIMIT

        others = question.how.processes - 1
        # More processes than cores must not poll for long: those they wait for need the cores.
        crowded = question.how.processes > (os.cpu_count() or 1)
        depths = Depths.of(question)
        wait = Wait.EVENT if crowded else Wait.HYBRID
        queues = Queues.create(self._adapter, depths, wait, others)
        lanes = []
        for place in range(others):
            lane = Lane.create(self._adapter, question, depths, queues, place)
            if place < self._role:
                host, port = offer["offers"][place]["address"]
                lane.connect(HOST, (host, port))
            else:
                self._listener.get_connection_request(lane.connector).result(LIMIT)
                lane.accept()
            lanes.append(lane)
        self._lanes[question], self._queues[question] = lanes, queues
        self._early[question] = [0] * others

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Do `count` steps: send one message to each other process, take one from each."""
        self._play(question, count // 20 + 1, False)
        return self._play(question, count, record and self._role == CLIENT)

    def _play(self, question: Question, count: int, record: bool) -> Reading:
        from ..loops.lane import check

        lanes, queues, early = self._lanes[question], self._queues[question], self._early[question]
        stamps = make_stamps(count) if record else None
        start = time.perf_counter()
        for _ in repeat(None, count) if stamps is None else ticks(stamps, count):
            for lane in lanes:
                lane.send(lane.outgoing)
            left = len(lanes)
            while left:
                left -= check(queues.initiator.wait(left))
            while min(early) < 1:
                for result in queues.arrived(len(lanes)):
                    check([result])
                    place = result.queue_pair_context
                    early[place] += 1
                    lanes[place].qp.receive(lanes[place].incoming)
            early[:] = [number - 1 for number in early]
        seconds = time.perf_counter() - start
        return Reading(seconds, intervals(stamps) if stamps is not None else {})

    def close(self) -> None:
        """Close the adapter, and with it all that was made from it."""
        self._lanes.clear()
        self._queues.clear()
        self._listener.close()
        self._adapter.close()
