# SPDX-License-Identifier: Apache-2.0
"""What the ends of all libraries with topics have in common.

A library provides the inner loops, each written as a program of that library would write it,
without a call of Python between the loop and the library. The clock is read in one way for all.
"""

import abc
import time
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final

from ..measure.question import Kind, Question
from ..measure.reading import Reading, Stamps, counters, intervals, make_stamps, ticks
from ..workers.worker import CLIENT

BURST: Final = 16
"""Samples of a publisher's call that are timed together; then the subscribers receive them."""
PAUSE: Final = 0.001
"""Seconds before a sleeping subscriber is woken: it sleeps by then."""
DEPTH: Final = 32
"""How many samples a subscriber may fall behind."""

Rounds = Iterable[object]
"""What a loop goes over; going over it may read the clock."""


class TopicEnd(abc.ABC):
    """One end: a publisher there, and a subscriber for the way back."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._leads = role == CLIENT

    @abc.abstractmethod
    def lead(self, question: Question, rounds: Rounds) -> None:
        """Send and receive, in each round."""

    @abc.abstractmethod
    def send_one(self, question: Question) -> None:
        """Send one sample."""

    @abc.abstractmethod
    def receive_one(self, question: Question) -> None:
        """Receive one sample; poll for it."""

    def follow(self, question: Question, rounds: Rounds) -> None:
        """Receive and send, in each round: the loop of the other end, half a round later."""
        rest = iter(rounds)
        next(rest)
        self.receive_one(question)
        self.lead(question, rest)
        self.send_one(question)

    def fill(self, question: Question, rounds: Rounds) -> None:
        """Build an array in place and send it, in each round; then receive once."""
        raise NotImplementedError(question.label)

    def drain(self, question: Question, rounds: Rounds) -> None:
        """Receive an array in each round; then send once."""
        raise NotImplementedError(question.label)

    def publish(self, question: Question, rounds: Rounds) -> None:
        """Send, in each round; nothing else is in the clock."""
        raise NotImplementedError(question.label)

    def take(self, question: Question, number: int) -> None:
        """Receive so many samples at each subscriber, and answer by one."""
        raise NotImplementedError(question.label)

    def wake(self, question: Question) -> None:
        """Send a value to a subscriber that sleeps."""
        raise NotImplementedError(question.label)

    def wait(self, question: Question) -> None:
        """Sleep until there is a value."""
        raise NotImplementedError(question.label)

    def send_time(self, question: Question, when: int) -> None:
        """Send a time."""
        raise NotImplementedError(question.label)

    def receive_time(self, question: Question) -> int:
        """Return the time that was sent; poll for it."""
        raise NotImplementedError(question.label)

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Run a loop, after a short run to warm up."""
        self._play(question, count // 20 + 1, False)
        return self._play(question, count, record)

    def _play(self, question: Question, count: int, record: bool) -> Reading:
        if question.kind is Kind.PUBLISH:
            return self._play_publish(question, count)
        if question.kind is Kind.WOKEN:
            return self._play_woken(question, count, record)
        lead, follow = self.lead, self.follow
        if question.kind is Kind.BUILT:
            lead, follow, record = self.fill, self.drain, False
        stamps: Stamps | None = make_stamps(count) if self._leads and record else None
        start = time.perf_counter()
        if self._leads:
            lead(question, repeat(None, count) if stamps is None else ticks(stamps, count))
        else:
            follow(question, repeat(None, count))
        seconds = time.perf_counter() - start
        return Reading(seconds, intervals(stamps) if stamps is not None else {})

    def _play_publish(self, question: Question, count: int) -> Reading:
        seconds = 0.0
        for number in _bursts(count):
            if self._leads:
                start = time.perf_counter()
                self.publish(question, repeat(None, number))
                seconds += time.perf_counter() - start
                self.receive_one(question)  # the answer
            else:
                self.take(question, number)
        return Reading(seconds)

    def _play_woken(self, question: Question, count: int, record: bool) -> Reading:
        """Time the way to a sleeping subscriber, which answers with the time of its wake-up."""
        times = []
        for _ in range(count):
            if self._leads:
                time.sleep(PAUSE)
                start = time.monotonic_ns()
                self.wake(question)
                times.append(self.receive_time(question) - start)
            else:
                self.wait(question)
                self.send_time(question, time.monotonic_ns())
        return Reading(sum(times) * 1e-9, counters(times) if record else {})


def _bursts(count: int) -> Iterator[int]:
    while count > 0:
        yield min(count, BURST)
        count -= BURST
