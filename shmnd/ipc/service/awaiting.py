# SPDX-License-Identifier: Apache-2.0
"""Tasks that wait for answers of one client: one of each event loop takes them, for all.

The one that takes sleeps at the bell of the client. The others sleep until something of their own
request comes, or until they are to take. If all slept at the bell, each answer would wake all.

A task that ends its wait, in whatever way, wakes the one that has waited longest if none of its
loop takes. That one may have its answer, and then does the same: while tasks wait, one takes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.interruption import Ignoring
from shmnd.common.late import asyncio
from shmnd.runtime.awaiting.awaited import resolve

if TYPE_CHECKING:
    from shmnd.ipc.service.pending import Pending

__all__ = ["AnswerWaiter", "Awaiting"]


class Awaiting:
    """The tasks that wait for answers of one client, by their loops."""

    def __init__(self) -> None:
        self.waiters: Final[dict[asyncio.AbstractEventLoop, OrderedDict[AnswerWaiter, None]]] = {}
        self.takers: Final[dict[asyncio.AbstractEventLoop, AnswerWaiter]] = {}


class AnswerWaiter:
    """One task that waits for one request."""

    def __init__(self, awaiting: Awaiting, pending: Pending) -> None:
        self._awaiting: Final = awaiting
        self._pending: Final = pending
        self._loop: Final = asyncio.get_running_loop()
        self._came: asyncio.Future[None] | None = None

    def enter(self) -> None:
        """Have rings wake the task from now on, until `leave`."""
        self._awaiting.waiters.setdefault(self._loop, OrderedDict())[self] = None
        self._pending._waiters.append(self)

    def takes(self) -> bool:
        """Return whether it is the task of its loop that takes the answers, from now on."""
        takers = self._awaiting.takers
        if self._loop not in takers:
            takers[self._loop] = self
        return takers[self._loop] is self

    def wake(self) -> None:
        """Have it check again; from any thread."""
        came = self._came
        if came is not None:
            with Ignoring(RuntimeError):  # its loop is closed
                self._loop.call_soon_threadsafe(resolve, came)

    async def sleep(self, seconds: float) -> None:
        """Sleep until something of its request comes, no task takes, or the time is over."""
        self._came = came = self._loop.create_future()
        # An answer that came before another thread could see the future woke nothing.
        if self._pending._is_answered() or self._loop not in self._awaiting.takers:
            return
        later: Any = None
        if seconds < math.inf:
            later = self._loop.call_later(seconds, resolve, came)
        try:
            await came
        finally:
            if later is not None:
                later.cancel()

    def leave(self) -> None:
        """Wait no more. Harmless when repeated."""
        waiters, takers = self._awaiting.waiters, self._awaiting.takers
        if self in self._pending._waiters:
            self._pending._waiters.remove(self)
        others = waiters.get(self._loop)
        if others is not None:
            others.pop(self, None)
        if takers.get(self._loop) is self:
            takers.pop(self._loop, None)
        if not others:
            waiters.pop(self._loop, None)
        elif self._loop not in takers:
            next(iter(others)).wake()
