# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to send a message that takes more than one step.

Threads take turns by a lock. Tasks take turns by a lock of their event loop, since a loop must not
wait for a thread; a connection may outlive its loop, and each further loop gets a lock of its own.
The task whose turn it is takes the lock of the threads too, so pieces of two messages never mix.
"""

from __future__ import annotations

import threading
import weakref
from typing import Final

from shmnd.common.held import Attempted
from shmnd.common.late import asyncio, running_loop

__all__ = ["SendTurns"]


class SendTurns:
    """The turns of one connection."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._tasks: asyncio.Lock | None = None

    def of_thread(self, call: str, left: float | None) -> Attempted:
        """Return the turn of a thread, for a `with` block: `as` is False if the time ends first.

        Raise RuntimeError in an event loop that has begun another message: the thread would wait
        for itself.
        """
        loop = running_loop()
        tasks = self._tasks
        if loop is not None and tasks is not None and tasks.locked() and self._loop_is(loop):
            raise RuntimeError(
                f"{call}: a task of the event loop of this thread is sending a message, and would"
                " wait for this call; await asend_bytes in an event loop"
            )
        longest = threading.TIMEOUT_MAX
        return Attempted(self._lock, longest if left is None else min(left, longest))

    def of_loop(self) -> asyncio.Lock:
        """Return the lock by which the tasks of the running loop take turns."""
        loop = asyncio.get_running_loop()
        tasks = self._tasks
        if tasks is None or not self._loop_is(loop):
            self._tasks = tasks = asyncio.Lock()
            self._loop = weakref.ref(loop)
        return tasks

    def of_task(self, call: str) -> Attempted:
        """Return the turn of the task that has the lock of its loop.

        Raise RuntimeError while a thread, or a task of another loop, sends a message.
        """
        if self._lock.locked():
            raise RuntimeError(
                f"{call}: a thread or another event loop is sending a message on this connection;"
                " an event loop and threads do not share a connection"
            )
        return Attempted(self._lock)

    def _loop_is(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop is not None and self._loop() is loop
