# SPDX-License-Identifier: Apache-2.0
"""Tasks of asyncio that sleep at the bell of an object, and what takes its place."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, Final, Protocol

from shmnd.common.interruption import Ignoring
from shmnd.common.late import asyncio
from shmnd.runtime.awaiting.awaited import resolve
from shmnd.status import NdMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

__all__ = ["POLL", "Poller", "TaskSleeper", "task_at"]

POLL: Final = 0.01
"""Seconds between two polls of a waiter for which no descriptor is free."""


class _Bell(Protocol):
    """What a task needs of the bell at which it sleeps."""

    fd: int

    def longest(self, seconds: float) -> float: ...
    def task(self, kind: Hashable = None) -> contextlib.AbstractContextManager[TaskSleeper]: ...


class TaskSleeper:
    """One task of asyncio that sleeps at a bell."""

    def __init__(self, bell: _Bell, loop: asyncio.AbstractEventLoop, kind: Hashable = None) -> None:
        self._bell = bell
        self.loop: Final = loop
        self.kind: Final = kind
        self.came: Final[asyncio.Future[None]] = loop.create_future()
        self.polls = False

    def close(self) -> None:
        """Do nothing: unlike a `Sleeper` it has no descriptor."""

    async def sleep(self, seconds: float) -> None:
        """Sleep as a thread does, and let other tasks run meanwhile."""
        if self._bell.fd < 0:
            return
        longest = min(self._bell.longest(seconds), POLL if self.polls else math.inf)
        later: Any = self.loop.call_later(longest, resolve, self.came)
        try:
            await self.came
        finally:
            later.cancel()

    def wake(self) -> None:
        """Have it check again; from any thread."""
        with Ignoring(RuntimeError):  # its loop is closed
            self.loop.call_soon_threadsafe(resolve, self.came)


class Poller:
    """In place of one that sleeps at a bell, where no descriptor is free for a bell."""

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for a moment."""
        await asyncio.sleep(min(seconds, POLL))


@contextlib.contextmanager
def task_at(bell: Callable[[], _Bell], kind: Hashable = None) -> Iterator[TaskSleeper | Poller]:
    """Register a task that a ring wakes, as `Bell.task`, or one that polls."""
    with contextlib.ExitStack() as stack:
        try:
            sleeper: TaskSleeper | Poller = stack.enter_context(bell().task(kind))
        except NdMemoryError:
            sleeper = Poller()
        yield sleeper
