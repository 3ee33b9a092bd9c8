# SPDX-License-Identifier: Apache-2.0
"""The floor under every transport that copies once: memcpy of one core.

`memcpy` copies between two areas of POSIX shared memory, the same kind of pages that messages
move between. `memcpy private` copies between two ordinary arrays, which the kernel may back with
huge pages. Both copy the same source to the same target again and again, as the streams do.
"""

import importlib
import mmap
import os
from collections.abc import Callable
from typing import Any, ClassVar

from ..measure.question import Kind, Question
from ..measure.reading import Reading
from ..subjects.subject import WorkerSubject
from ..workers.harness import Stage, Workers
from ..workers.worker import CLIENT


class Memcpy(WorkerSubject):
    """One pinned process that copies between shared pages."""

    name: ClassVar[str] = "memcpy"
    end: ClassVar[str] = ".floors.memcpy:MemcpyEnd"
    needs: ClassVar[str] = "shmnd.ring.loops"
    shared: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__({"shared": self.shared})

    def launch(self, stage: Stage) -> Workers:
        """Start one worker, not two."""
        return Workers.start(stage, roles=(CLIENT,))

    def answers(self, question: Question) -> bool:
        """Return True for a stream of messages so long that the call itself is a small part."""
        return question.kind is Kind.STREAM and question.size >= 4096


class PrivateMemcpy(Memcpy):
    """One pinned process that copies between private pages."""

    name: ClassVar[str] = "memcpy private"
    shared: ClassVar[bool] = False


class MemcpyEnd:
    """Copies, in the compiled module, which calls the C library's memcpy."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._shared = bool(options["shared"])
        self._areas: dict[int, list[mmap.mmap]] = {}
        copy: Callable[[mmap.mmap, mmap.mmap, int], float]
        copy = importlib.import_module("shmnd.ring.loops").copy
        self._copy = copy

    def describe(self) -> dict[str, str]:
        """Return the version of the C library, which has the memcpy."""
        return {"libc": os.confstr("CS_GNU_LIBC_VERSION") or "unknown"}

    def offer(self, question: Question) -> dict[str, Any]:
        """Return an empty offer: there is no other side."""
        return {}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Do nothing: there is no other side."""

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Copy `count` times; return the seconds that the copies themselves took."""
        target, source = self.areas(question.size)
        return Reading(self._copy(target, source, count))

    def areas(self, size: int) -> list[mmap.mmap]:
        """Return the target and the source of copies of one size."""
        if size not in self._areas:
            map_area = _map_shared if self._shared else _map_private
            self._areas[size] = [map_area(size) for _ in ("target", "source")]
        return self._areas[size]

    def close(self) -> None:
        """Unmap the areas."""
        for areas in self._areas.values():
            for area in areas:
                area.close()


def _map_shared(nbytes: int) -> mmap.mmap:
    descriptor = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
        return _touch(mmap.mmap(descriptor, nbytes))
    finally:
        os.close(descriptor)


def _map_private(nbytes: int) -> mmap.mmap:
    area = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_HUGEPAGE)
    return _touch(area)


def _touch(area: mmap.mmap) -> mmap.mmap:
    """Write to every page, so that it is committed, and return the area."""
    area[:] = bytes(len(area))
    return area
