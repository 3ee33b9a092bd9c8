# SPDX-License-Identifier: Apache-2.0
"""`multiprocessing.Queue` and `ipc.Queue`, in one program with another import.

The worker process starts the other end itself, as programs with queues do: it passes both queues
to a child.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import platform
import time
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..measure.question import Kind, Question
from ..measure.reading import Reading, counters, intervals, make_stamps, ticks
from ..subjects.subject import WorkerSubject
from ..workers import leash
from ..workers.worker import CLIENT
from .ends import PAUSE

if TYPE_CHECKING:
    from ..workers.harness import Stage, Workers

_END_LIMIT: Final = 5.0


class Queues(WorkerSubject):
    """Two processes and a queue for each direction, of `shmnd.ipc`."""

    name: ClassVar[str] = "ipc.Queue"
    end: ClassVar[str] = ".ipc.queues:QueuesEnd"
    module: ClassVar[str] = "shmnd.ipc"

    def answers(self, question: Question) -> bool:
        """Return whether the question is of objects to and fro, or of waking a get that sleeps."""
        return question.kind in (Kind.OBJECT, Kind.WOKEN)

    def launch(self, stage: Stage) -> Workers:
        """Start one worker, which starts the other process."""
        from ..workers.harness import Workers

        self._options |= {"module": self.module, "cpus": list(stage.cpus)}
        return Workers.start(stage, roles=(CLIENT,))


class MultiprocessingQueues(Queues):
    """The same with the queues of Python."""

    name: ClassVar[str] = "multiprocessing.Queue"
    module: ClassVar[str] = "multiprocessing"


class QueuesEnd:
    """The process that starts, with its child."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._cpus = options["cpus"][1:2]
        self._module = options["module"]
        self._there, self._back = (self._queue() for _ in range(2))
        # Forked: of the two libraries no thread runs yet. The questions go over a pipe.
        context = multiprocessing.get_context("fork")
        self._commands, theirs = context.Pipe()
        ends = (self._commands, theirs)
        given = (ends, self._there, self._back, self._cpus, os.getpid())
        self._child = context.Process(target=_answer_all, args=given, daemon=True)
        self._child.start()
        theirs.close()

    def _queue(self) -> Any:
        return importlib.import_module(self._module).Queue()

    def describe(self) -> dict[str, str]:
        """Return the version of shmnd, or of Python, whichever has the queue."""
        found = getattr(importlib.import_module(self._module.partition(".")[0]), "__version__", "")
        return {"shmnd": found} if found else {"Python": platform.python_version()}

    def offer(self, question: Question) -> dict[str, Any]:
        """Return an empty offer: the queues serve all questions."""
        return {}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Do nothing: both ends have the queues."""

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Put and get, after a short run to warm up."""
        self._play(question, count // 20 + 1, False)
        return self._play(question, count, record)

    def _play(self, question: Question, count: int, record: bool) -> Reading:
        if question.kind is Kind.WOKEN:
            return self._play_woken(count, record)
        self._commands.send((question.size, count))
        item = _item(question.size)
        put, get = self._there.put, self._back.get
        stamps = make_stamps(count) if record else None
        start = time.perf_counter()
        for _ in repeat(None, count) if stamps is None else ticks(stamps, count):
            put(item)
            get()
        seconds = time.perf_counter() - start
        return Reading(seconds, intervals(stamps) if stamps is not None else {})

    def _play_woken(self, count: int, record: bool) -> Reading:
        self._commands.send((None, count))
        times = []
        for _ in range(count):
            time.sleep(PAUSE)
            start = time.monotonic_ns()
            self._there.put(start)
            times.append(self._back.get() - start)
        return Reading(sum(times) * 1e-9, counters(times) if record else {})

    def close(self) -> None:
        """Let the child end."""
        self._commands.close()
        self._child.join(_END_LIMIT)
        if self._child.is_alive():
            self._child.kill()
            self._child.join()
        for queue in (self._there, self._back):
            queue.close()


def _answer_all(ends: tuple[Any, Any], there: Any, back: Any, cpus: list[int], parent: int) -> None:
    starter, commands = ends
    starter.close()  # or the end of the starter would not be seen
    leash.hold(parent)
    leash.pin(cpus)
    while True:
        try:
            size, count = commands.recv()
        except EOFError:
            return
        item = None if size is None else _item(size)
        for _ in repeat(None, count):
            there.get()
            back.put(time.monotonic_ns() if size is None else item)


def _item(size: int) -> object:
    """Return the item: an array of so many bytes, or a small object."""
    if not size:
        return {"frame": 7, "name": "left"}
    return importlib.import_module("numpy").zeros(size, "u1")
