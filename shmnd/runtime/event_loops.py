# SPDX-License-Identifier: Apache-2.0
"""The event loops of asyncio in which tasks wait: each polls when the descriptor is readable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from shmnd.runtime.resuming import LoopPolls

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import PolledByTurns

__all__ = ["EventLoops", "poll_by_turns"]

_LINGER: Final = 0.01
"""Seconds for which a loop keeps its reader without a waiter: most often one comes soon."""


class EventLoops(LoopPolls):
    """Loops that watch one descriptor, each as long as a task waits in it, and a little more."""

    def __init__(self, fd: int, poll: Callable[[], None]) -> None:
        self._fd = fd
        super().__init__(poll)
        self._waiting: dict[asyncio.AbstractEventLoop, dict[int, Callable[[], None]]] = {}
        self._lingering: set[asyncio.AbstractEventLoop] = set()

    def __len__(self) -> int:
        return sum(1 for waiting in list(self._waiting.values()) if waiting)

    def begin(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """Have a loop poll whenever the descriptor is readable; `leave` calls `wake`."""
        waiting = self._waiting.get(loop)
        if waiting is None:
            for closed in [each for each in list(self._waiting) if each.is_closed()]:
                self._waiting.pop(closed, None)
                self._lingering.discard(closed)
            loop.add_reader(self._fd, self._poll_in, loop)
            waiting = self._waiting[loop] = {}
        waiting[id(wake)] = wake

    def end(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """End the wait that `begin` began; harmless when none began."""
        waiting = self._waiting.get(loop)
        if waiting is None:
            return
        waiting.pop(id(wake), None)
        if waiting or loop in self._lingering:
            return
        try:
            loop.call_later(_LINGER, self._stop_if_idle, loop)
        except RuntimeError:
            self._waiting.pop(loop, None)  # that loop is closed
        else:
            self._lingering.add(loop)

    def _stop_if_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._lingering.discard(loop)
        if self._waiting.get(loop) == {}:
            self._waiting.pop(loop)
            self._remove_reader(loop)

    def leave(self) -> None:
        """Take the descriptor out of all loops, before it is closed."""
        for loop, waiting in list(self._waiting.items()):
            self._waiting.pop(loop, None)
            self._lingering.discard(loop)
            self._remove_reader(loop)
            for wake in list(waiting.values()):
                wake()

    def close_in_child(self) -> None:
        """After fork: the loops are the parent's."""
        self._waiting.clear()
        self._lingering.clear()
        self._forget_polls()

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


def poll_by_turns(
    reference: Callable[[], PolledByTurns | None], over: Callable[[], bool]
) -> Generator[None, None, None]:
    """Poll in a task for a while before it sleeps; all other tasks run between two polls.

    An answer that comes at once then wakes no process: neither a doorbell nor a sleep is needed.
    `reference` is a weak one: the object is not kept alive.
    """
    polled = reference()
    window = 0.0 if polled is None else polled._poll_window()
    if polled is None or window <= 0:
        return
    until = time.monotonic() + window
    polled._begin_turns()
    try:
        while not over():
            polled = None
            yield  # the loop runs its ready callbacks, and this task again
            polled = reference()
            if polled is None or over():
                return
            polled._take_turn()
            if time.monotonic() >= until:
                return
    finally:
        polled = reference()
        if polled is not None:
            polled._end_turns()
