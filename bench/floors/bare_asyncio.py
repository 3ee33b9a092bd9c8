# SPDX-License-Identifier: Apache-2.0
"""The floor under a message that a task awaits: two event loops, two pipes, and no library.

The descriptor of a pipe is all that a loop watches; its callback reads the message and resolves
the future that the one task awaits. No transport under asyncio makes less.
"""

import asyncio
import functools
import os
import time
from typing import Any, ClassVar, Final

from ..measure.how import How, Wait
from ..measure.question import Kind, Question
from ..measure.reading import Reading
from ..subjects.subject import WorkerSubject
from ..workers.worker import CLIENT

_MOST: Final = 4096
"""The bytes that a pipe moves in one piece."""


class BareAsyncio(WorkerSubject):
    """Two processes with a pipe in each direction, each in an event loop."""

    name: ClassVar[str] = "bare asyncio"
    end: ClassVar[str] = ".floors.bare_asyncio:BareAsyncioEnd"

    def answers(self, question: Question) -> bool:
        """Return True for a ping-pong between two tasks, in one piece each way."""
        awaited = question.how == How(wait=Wait.ASYNCIO) and not question.idle
        return question.kind is Kind.PINGPONG and awaited and 0 < question.size <= _MOST


class BareAsyncioEnd:
    """One end. The pipes have no names: the client opens them by the server's descriptors."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._role = role
        self._descriptors: list[int] = []
        self._reading = self._writing = -1

    def describe(self) -> dict[str, str]:
        """Return no version: the report names the interpreter."""
        return {}

    def offer(self, question: Question) -> dict[str, Any]:
        """Make the pipes, once."""
        if not self._descriptors:
            self._reading, theirs = os.pipe()
            other, self._writing = os.pipe()
            self._descriptors = [self._reading, theirs, other, self._writing]
        folder = f"/proc/{os.getpid()}/fd"
        _, theirs, other, _ = self._descriptors
        return {"reading": f"{folder}/{other}", "writing": f"{folder}/{theirs}"}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Open the pipes, once."""
        if not self._descriptors:
            self._reading = os.open(offer["reading"], os.O_RDONLY)
            self._descriptors.append(self._reading)
            self._writing = os.open(offer["writing"], os.O_WRONLY)
            self._descriptors.append(self._writing)

    def run(self, question: Question, count: int, record: bool) -> Reading:
        """Bounce, after a short run to warm up. Single rounds are not timed."""
        asyncio.run(self._bounce(question.size, count // 20 + 1))
        start = time.perf_counter()
        asyncio.run(self._bounce(question.size, count))
        return Reading(time.perf_counter() - start)

    async def _bounce(self, nbytes: int, count: int) -> None:
        first = self._role == CLIENT
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[None] = loop.create_future()
        send = functools.partial(os.write, self._writing, bytes(nbytes))

        def arrived() -> None:
            os.read(self._reading, nbytes)
            arrival.set_result(None)

        loop.add_reader(self._reading, arrived)
        for _ in range(count):
            if first:
                send()
            await arrival
            arrival = loop.create_future()
            if not first:
                send()
        # The loop runs on for a moment, and the first message of the next run is that one's.
        loop.remove_reader(self._reading)

    def close(self) -> None:
        """Close the pipes."""
        for descriptor in self._descriptors:
            os.close(descriptor)
