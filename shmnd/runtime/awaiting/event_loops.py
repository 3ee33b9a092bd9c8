# SPDX-License-Identifier: Apache-2.0
"""The event loops of asyncio in which tasks wait: each polls when the descriptor is readable."""

from __future__ import annotations

from shmnd.common.late import asyncio, running_loop
from shmnd.runtime.awaiting.resuming import LoopPolls

__all__ = ["EventLoops"]


class EventLoops(LoopPolls):
    """Loops that watch one descriptor, each from the first wait to a ring without a waiter."""

    def __len__(self) -> int:
        return sum(1 for waiting in list(self._waiting.values()) if waiting)

    def leave(self) -> None:
        """Take the descriptor out of all loops, before it is closed."""
        for loop, waiting in list(self._waiting.items()):
            self._remove_reader(loop)
            for wake in list(waiting.values()):
                wake()
            self._waiting.pop(loop, None)  # last: what a handler has interrupted is called again

    def _remove_reader(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop.is_closed():
            return  # it has none any more
        try:
            if running_loop() is loop:
                loop.remove_reader(self._fd)
            else:
                loop.call_soon_threadsafe(loop.remove_reader, self._fd)
        except RuntimeError:
            pass  # that loop was closed just now
