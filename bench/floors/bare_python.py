# SPDX-License-Identifier: Apache-2.0
"""The floor under a one-sided Write from Python: two processes that share a page, and no library.

The loop is that of the Write with the calls left out: each end stores a mark in a byte of the page,
and reads the other end's byte until the mark shows. No transport that Python calls is faster.
"""

import time
from itertools import cycle, islice
from typing import ClassVar, Final

from ..measure.how import USUAL
from ..measure.question import Kind, Question
from ..measure.reading import Reading
from ..workers.worker import CLIENT
from .cacheline import CacheLine, CacheLineEnd

_PLACES: Final = (0, 2048)
"""The byte that the client writes and the one that the server writes: no prefetch gets both."""
_MARKS: Final = 250
"""Marks are 1 to this, in turn; a new page has 0."""


class BarePython(CacheLine):
    """Two processes that share a page, with loops in Python."""

    name: ClassVar[str] = "bare Python"
    end: ClassVar[str] = ".floors.bare_python:BarePythonEnd"

    def answers(self, question: Question) -> bool:
        """Return whether it is a Write of data that fits into one line."""
        return question.kind is Kind.WRITE and question.how == USUAL and super().answers(question)


class BarePythonEnd(CacheLineEnd):
    """One end."""

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Bounce, after a short run to warm up. Single rounds are not timed."""
        self._exchange(count // 20 + 1)
        return self._exchange(count)

    def _exchange(self, count: int) -> Reading:
        first = self._role == CLIENT
        mine, theirs = _PLACES if first else reversed(_PLACES)
        page = memoryview(self.page())
        begin = self._turns % _MARKS
        self._turns += count
        start = time.perf_counter()
        for mark in islice(cycle(range(1, _MARKS + 1)), begin, begin + count):
            if first:
                page[mine] = mark
            while page[theirs] != mark:
                pass
            if not first:
                page[mine] = mark
        seconds = time.perf_counter() - start
        page.release()
        return Reading(seconds)
