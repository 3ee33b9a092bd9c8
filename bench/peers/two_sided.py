# SPDX-License-Identifier: Apache-2.0
"""What all peers that send and receive from Python have in common: the loops.

A peer provides two calls without arguments, as cheap as it can make them, and both the measured
loop and the reading of the clock are the same for all of them.
"""

import abc
import dataclasses
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any, ClassVar

from ..measure.how import USUAL, How, Wait
from ..measure.question import Kind, Question
from ..measure.reading import Reading, Stamps, counters, intervals, make_stamps, ticks
from ..subjects.subject import WorkerSubject
from ..workers.worker import CLIENT

Call = Callable[[], object]


class TwoSided(WorkerSubject):
    """A peer with Send and Receive and nothing else."""

    sleeps: ClassVar[bool] = False
    """A waiter sleeps in the kernel at once, as `Wait.EVENT` demands."""

    def answers(self, question: Question) -> bool:
        """Return whether it is a ping-pong or a stream, with no option that only shmnd supports."""
        if question.idle:
            return False
        if self.sleeps and question.kind is Kind.PINGPONG:
            return dataclasses.replace(question.how, rate=0.0) in (USUAL, How(wait=Wait.EVENT))
        return question.how == USUAL and question.kind in (Kind.PINGPONG, Kind.STREAM)


class TwoSidedEnd(abc.ABC):
    """One end of such a peer."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._role = role

    @abc.abstractmethod
    def calls(self, question: Question) -> tuple[Call, Call]:
        """Return a call that sends one message and one that waits for one."""

    def offer(self, question: Question) -> dict[str, Any]:
        """Return an empty offer: the client needs nothing to find the server."""
        return {}

    def join(  # noqa: B027  # the starter connects some of them
        self, question: Question, offer: dict[str, Any]
    ) -> None:
        """Do nothing: the starter connects the ends, where that is needed."""

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
        if first and question.how.rate:
            return self._play_paced(question, send, receive, count, record)
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

    def _play_paced(
        self, question: Question, send: Call, receive: Call, count: int, record: bool
    ) -> Reading:
        """Return the times of rounds that begin when the other side has long been asleep."""
        from ..loops.latency import clock_ns, due_times

        times: Stamps = make_stamps(count)
        start = time.perf_counter()
        for place, due in enumerate(due_times(count, question.how.rate)):
            send()
            receive()
            times[place] = clock_ns() - due
        seconds = time.perf_counter() - start
        return Reading(seconds, counters(times[:count])) if record else Reading(seconds)

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
