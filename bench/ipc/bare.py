# SPDX-License-Identifier: Apache-2.0
"""The floor under a sample from Python: a call that sends, a call that receives, and no library.

Each call is a method in C that stores, or polls, one cache line. Arrays are written and read as
they are with a library. The sender's is always the same one; the receiver makes one of each sample,
in the way that takes numpy the least time. No library that is called once for each sample hands it
over sooner. A receiver that sleeps is woken by one write to a pipe.
"""

import importlib
import os
from typing import Any, ClassVar, Final

from ..floors.cacheline import CacheLine, CacheLineEnd
from ..measure.how import USUAL
from ..measure.question import Kind, Question
from ..subjects.subject import WorkerSubject
from ..workers.worker import CLIENT
from .ends import Rounds, TopicEnd

_ARRAYS: Final = (8, 512 + 8)
"""Where the array of the client and that of the server lie in the page: behind their numbers."""
_LENGTH: Final = 56
_TIME: Final = 1024
"""Where the time of a wake-up lies."""


class BareCalls(WorkerSubject):
    """Two processes that share a page."""

    name: ClassVar[str] = "bare calls"
    install: ClassVar[str] = CacheLine.install
    end: ClassVar[str] = ".ipc.bare:BareCallsEnd"
    needs: ClassVar[str] = "numpy"

    def answers(self, question: Question) -> bool:
        """Return whether a sample goes to and fro, or wakes; its size makes no difference."""
        plain = question.how == USUAL and not question.idle
        return plain and question.kind in (Kind.VALUE, Kind.ARRAY, Kind.WOKEN)


class BareCallsEnd(TopicEnd):
    """One end. The page is that of the cache line."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._first = role == CLIENT
        self._page = CacheLineEnd(role, options)
        self._line: Any = None
        self._mine: Any = None
        self._theirs: Any = None
        self._time: Any = None
        self._pipe: list[int] = []
        """The end of the pipe that this process uses, the last one; the server keeps both."""

    def describe(self) -> dict[str, str]:
        """Return no version: the report names the interpreter."""
        return {}

    def offer(self, question: Question) -> dict[str, Any]:
        """Make the page and the pipe, once."""
        if not self._pipe:
            self._pipe += reversed(os.pipe())
        writing = f"/proc/{os.getpid()}/fd/{self._pipe[0]}"
        return {**self._page.offer(question), "pipe": writing}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Map the page and open the pipe, once."""
        self._page.join(question, offer)
        if not self._pipe:
            self._pipe.append(os.open(offer["pipe"], os.O_WRONLY))
        if self._line is None:
            numpy, page = importlib.import_module("numpy"), self._page.page()
            self._line = importlib.import_module("shmnd.ring.loops").LineEnd(page, self._first)
            ends = [numpy.frombuffer(page, "u1", _LENGTH, at) for at in _ARRAYS]
            self._mine, self._theirs = ends if self._first else reversed(ends)
            self._time = numpy.frombuffer(page, "i8", 1, _TIME)

    def lead(self, question: Question, rounds: Rounds) -> None:
        """Store and poll, in each round."""
        give, take = self._line.give, self._line.take
        if question.kind is Kind.ARRAY:
            mine, theirs = self._mine, self._theirs
            for _ in rounds:
                mine[0] = 7
                give()
                take()
                _ = theirs[:][0]
        else:
            for _ in rounds:
                give()
                take()

    def send_one(self, question: Question) -> None:
        """Store."""
        self._line.give()

    def receive_one(self, question: Question) -> None:
        """Poll."""
        self._line.take()

    def wake(self, question: Question) -> None:
        """Write to the pipe."""
        os.write(self._pipe[-1], b"x")

    def wait(self, question: Question) -> None:
        """Read from the pipe, which sleeps until there is something."""
        os.read(self._pipe[-1], 1)

    def send_time(self, question: Question, when: int) -> None:
        """Store a time."""
        self._time[0] = when

    def receive_time(self, question: Question) -> int:
        """Poll for a time, and return it."""
        times = self._time
        while not times[0]:
            pass
        when, times[0] = int(times[0]), 0
        return when

    def close(self) -> None:
        """Unmap the page, which the arrays and the line refer to, and close the pipe."""
        self._line = self._mine = self._theirs = self._time = None
        self._page.close()
        while self._pipe:
            os.close(self._pipe.pop())
