# SPDX-License-Identifier: Apache-2.0
"""The floor under every ping-pong: one cache line that goes there and another that comes back.

The loop is in the compiled module: a store, and polls until the other side's store shows.
"""

import importlib
import mmap
import os
import time
from typing import Any, ClassVar

from ..measure.how import USUAL
from ..measure.question import Kind, Question
from ..measure.reading import Reading, intervals, make_stamps
from ..subjects.subject import WorkerSubject
from ..workers.worker import CLIENT

_SIZE = mmap.PAGESIZE
_LINE = 64


class CacheLine(WorkerSubject):
    """Two processes that share a page."""

    name: ClassVar[str] = "cache line"
    install: ClassVar[str] = "pip install shmnd"
    end: ClassVar[str] = ".floors.cacheline:CacheLineEnd"
    needs: ClassVar[str] = "shmnd.ring.loops"

    def answers(self, question: Question) -> bool:
        """Return True for a ping-pong whose messages fit into one line."""
        latency = question.kind in (Kind.PINGPONG, Kind.WRITE)
        plain = question.how == USUAL and not question.idle
        return latency and plain and question.size <= _LINE


class CacheLineEnd:
    """One end. The page has no name: the client opens it by the server's descriptor."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._role = role
        self._loops: Any = importlib.import_module("shmnd.ring.loops")
        self._file = -1
        self._page: mmap.mmap | None = None
        self._turns = 0

    def describe(self) -> dict[str, str]:
        """Return no version: the report names the machine."""
        return {}

    def offer(self, question: Question) -> dict[str, Any]:
        """Make the page, once."""
        if self._page is None:
            self._file = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)
            os.posix_fallocate(self._file, 0, _SIZE)
            self._page = mmap.mmap(self._file, _SIZE)
        return {"path": f"/proc/{os.getpid()}/fd/{self._file}"}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Map the page, once."""
        if self._page is None:
            descriptor = os.open(offer["path"], os.O_RDWR)
            try:
                self._page = mmap.mmap(descriptor, _SIZE)
            finally:
                os.close(descriptor)

    def page(self) -> mmap.mmap:
        """Return the page, once it is mapped."""
        assert self._page is not None
        return self._page

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Bounce, after a short run to warm up."""
        self._bounce(count // 20 + 1, False)
        return self._bounce(count, record)

    def _bounce(self, count: int, record: bool) -> Reading:
        first = self._role == CLIENT
        stamps = make_stamps(count) if first and record else None
        start = time.perf_counter()
        self._loops.exchange_lines(self._page, self._turns, count, first, stamps)
        seconds = time.perf_counter() - start
        self._turns += count
        return Reading(seconds, intervals(stamps) if stamps is not None else {})

    def close(self) -> None:
        """Unmap the page."""
        if self._page is not None:
            self._page.close()
        if self._file >= 0:
            os.close(self._file)
