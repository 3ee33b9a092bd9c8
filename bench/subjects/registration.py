# SPDX-License-Identifier: Apache-2.0
"""What registering memory costs: one process, one region after another or several at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..measure.how import Memory
from ..measure.question import Kind, Question
from ..measure.reading import Reading
from ..workers.worker import CLIENT
from .subject import WorkerSubject

if TYPE_CHECKING:
    import numpy

    from ..workers.harness import Stage, Workers

_LIMIT: Final = 20.0
LOCAL: Final = "memory is registered by one process alone, so there is no other end"
"""Why nothing of it runs on a server."""
KINDS: Final = (Kind.REGISTER, Kind.DEREGISTER, Kind.REGISTRATION)


class Registrar(WorkerSubject):
    """A process that registers memory again and again."""

    name: ClassVar[str] = "shmnd"
    end: ClassVar[str] = ".subjects.registration:RegistrarEnd"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__({"namespace": namespace})

    def launch(self, stage: Stage) -> Workers:
        """Start one worker, not two."""
        from ..workers.harness import Workers

        return Workers.start(stage, roles=(CLIENT,))

    def answers(self, question: Question) -> bool:
        """Return True only for registrations."""
        return question.kind in KINDS


class RegistrarEnd:
    """The process."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        import shmnd

        self._shmnd = shmnd
        self._adapter = shmnd.open_adapter(namespace=options["namespace"])
        self._memory: dict[Question, list[numpy.ndarray]] = {}

    def describe(self) -> dict[str, str]:
        """Return the version."""
        return {"shmnd": self._shmnd.__version__}

    def offer(self, question: Question) -> dict[str, Any]:
        """Return an empty offer: there is no other side."""
        return {}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Allocate the memory, every page of it, before the clock runs: a piece for each thread."""
        self._memory[question] = [self._allocate(question) for _ in range(question.how.threads)]

    def _allocate(self, question: Question) -> numpy.ndarray:
        import numpy

        if question.how.memory is Memory.PRIVATE:
            return numpy.full(question.size, 0, numpy.uint8)
        memory = self._adapter.allocate(question.size)
        memory[:] = 0
        return memory

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Register and deregister `count` times, by all threads together."""
        if question.kind is Kind.REGISTRATION:
            return Reading(self._all_threads(question, count))
        times: tuple[Counter[int], Counter[int]] = Counter(), Counter()
        self._cycle(self._memory[question][0], count, times)
        samples = times[question.kind is Kind.DEREGISTER]
        seconds = sum(spent * often for spent, often in samples.items()) * 1e-9
        return Reading(seconds, samples if record else {})

    def _cycle(
        self, memory: numpy.ndarray, count: int, times: tuple[Counter[int], Counter[int]]
    ) -> None:
        region = self._adapter.create_memory_region()
        clock = time.perf_counter_ns
        rights = self._rights
        for _ in range(count):
            begun = clock()
            region.register(memory, rights).result(_LIMIT)
            registered = clock()
            region.deregister().result(_LIMIT)
            times[1][clock() - registered] += 1
            times[0][registered - begun] += 1

    @property
    def _rights(self) -> int:
        flags = self._shmnd.MrFlag
        return int(flags.ALLOW_LOCAL_WRITE | flags.ALLOW_REMOTE_READ | flags.ALLOW_REMOTE_WRITE)

    def _all_threads(self, question: Question, count: int) -> float:
        ready = threading.Barrier(question.how.threads + 1)
        failures: list[BaseException] = []
        shares = [count // question.how.threads] * question.how.threads
        shares[0] += count - sum(shares)

        def work(memory: numpy.ndarray, share: int) -> None:
            try:
                region = self._adapter.create_memory_region()
                ready.wait(_LIMIT)
                for _ in range(share):
                    region.register(memory, self._rights).result(_LIMIT)
                    region.deregister().result(_LIMIT)
            except BaseException as exc:
                failures.append(exc)

        threads = [
            threading.Thread(target=work, args=pair)
            for pair in zip(self._memory[question], shares, strict=True)
        ]
        for thread in threads:
            thread.start()
        ready.wait(_LIMIT)
        start = time.perf_counter()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return time.perf_counter() - start

    def close(self) -> None:
        """Close the adapter."""
        self._memory.clear()
        self._adapter.close()
