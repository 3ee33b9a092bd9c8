# SPDX-License-Identifier: Apache-2.0
"""What all peers that send and receive from Python have in common: the loops.

A peer gives two calls without arguments, as cheap as it can make them, and both the measured
loop and the look at the clock are the same for all of them.
"""

import abc
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

from ..how import USUAL
from ..question import Kind, Question
from ..reading import Reading, intervals, make_stamps, ticks
from ..subject import WorkerSubject
from ..worker import CLIENT

Call = Callable[[], object]


class TwoSided(WorkerSubject):
    """A peer with Send and Receive and nothing else."""

    def answers(self, question: Question) -> bool:
        """Ping-pong and streams, with no wishes that only shmnd knows."""
        plain = question.how == USUAL and not question.idle
        return plain and question.kind in (Kind.PINGPONG, Kind.STREAM)


class TwoSidedEnd(abc.ABC):
    """One end of such a peer."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._role = role

    @abc.abstractmethod
    def calls(self, question: Question) -> tuple[Call, Call]:
        """Give a call that sends one message and one that waits for one."""

    def offer(self, question: Question) -> dict[str, Any]:
        """Nothing is needed to find the server."""
        return {}

    def join(  # noqa: B027  # some are connected by whoever started them
        self, question: Question, offer: dict[str, Any]
    ) -> None:
        """Nothing is needed to connect."""

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Run a loop, after a short run to warm up."""
        send, receive = self.calls(question)
        self._play(question, send, receive, count // 20 + 1, False)
        self.align()
        return self._play(question, send, receive, count, record)

    def align(self) -> None:  # noqa: B027  # most have no such call
        """Let both sides begin together, where the transport has a call for that."""

    def _play(
        self, question: Question, send: Call, receive: Call, count: int, record: bool
    ) -> Reading:
        first = self._role == CLIENT
        stamps = make_stamps(count) if first and record and not question.is_stream else None
        start = time.perf_counter()
        if question.is_stream:
            self.stream(question, send, receive, count)
        elif first:
            for _ in repeat(None, count) if stamps is None else ticks(stamps, count):
                send()
                receive()
        else:
            for _ in repeat(None, count):
                receive()
                send()
        seconds = time.perf_counter() - start
        return Reading(seconds, intervals(stamps) if stamps is not None else {})

    def stream(self, question: Question, send: Call, receive: Call, count: int) -> None:
        """Send so many messages; the sender's clock stops when the receiver has everything."""
        if self._role == CLIENT:
            for _ in repeat(None, count):
                send()
            receive()
        else:
            for _ in repeat(None, count):
                receive()
            send()
