# SPDX-License-Identifier: Apache-2.0
"""The event loops of asyncio in which a process waits: they look when there is something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["EventLoops"]


class EventLoops:
    """Loops that watch one descriptor, each as long as somebody waits in it."""

    def __init__(self, fd: int, look: Callable[[], None]) -> None:
        self._fd = fd
        self._look = look
        self._waiting: dict[asyncio.AbstractEventLoop, dict[int, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def readable_in(
        self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]
    ) -> Iterator[None]:
        """Have a loop look whenever the descriptor is readable; `wake` is called by `leave`."""
        if loop not in self._waiting:
            loop.add_reader(self._fd, self._look)
            self._waiting[loop] = {}
        waiting = self._waiting[loop]
        waiting[id(wake)] = wake
        try:
            yield
        finally:
            del waiting[id(wake)]
            if not waiting and self._waiting.pop(loop, None) is not None:
                self._remove_reader(loop)

    def leave(self) -> None:
        """Take the descriptor out of all loops, before it is closed."""
        for loop, waiting in list(self._waiting.items()):
            self._waiting.pop(loop, None)
            self._remove_reader(loop)
            for wake in list(waiting.values()):
                wake()

    def close_in_child(self) -> None:
        """After fork: the loops are the parent's."""
        self._waiting.clear()

    def _remove_reader(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False  # no loop runs in this thread
        try:
            if here:
                loop.remove_reader(self._fd)
            else:
                loop.call_soon_threadsafe(loop.remove_reader, self._fd)
        except RuntimeError:
            pass  # that loop is closed
