# SPDX-License-Identifier: Apache-2.0
"""The event loops of asyncio in which tasks wait: each polls when the descriptor is readable."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import PolledByTurns

__all__ = ["Awaited", "EventLoops", "poll_by_turns"]

_LINGER: Final = 0.01
"""Seconds for which a loop keeps its reader without a waiter: most often one comes soon."""


class EventLoops:
    """Loops that watch one descriptor, each as long as a task waits in it, and a little more."""

    def __init__(self, fd: int, poll: Callable[[], None]) -> None:
        self._fd = fd
        self._poll = poll
        self._waiting: dict[asyncio.AbstractEventLoop, dict[int, Callable[[], None]]] = {}
        self._lingering: set[asyncio.AbstractEventLoop] = set()
        # By thread: the loop whose callback polls there, and what that poll has ended.
        self._polling: dict[int, tuple[asyncio.AbstractEventLoop, list[Awaited]]] = {}

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

    def resolve(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        """Resolve a future of a loop, from any thread."""
        polled_in, ended = self._polling.get(threading.get_ident(), (None, []))
        if polled_in is not loop:
            resolve_from_elsewhere(loop, future)
        elif isinstance(future, Awaited):
            ended.append(future)
        else:
            resolve(future)

    def _poll_in(self, loop: asyncio.AbstractEventLoop) -> None:
        me = threading.get_ident()
        ended: list[Awaited] = []
        self._polling[me] = loop, ended
        try:
            self._poll()
        finally:
            self._polling.pop(me, None)
            if ended:
                _resume(loop, ended)

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
        self._polling.clear()

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


class Awaited(asyncio.Future[None]):
    """What one task awaits, and the poll in a callback of its loop resumes.

    That task continues in the same turn of its loop. A plain future resumes it in the next one,
    for which the loop asks the kernel for events once more.
    """

    _task: tuple[Callable[[Any], object], contextvars.Context] | None = None

    def add_done_callback(
        self, fn: Callable[[Self], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Resume a task; further ones are called by the loop."""
        if self._task is None and not self.done():
            self._task = fn, contextvars.copy_context() if context is None else context
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Self], object], /) -> int:
        """Resume it no more."""
        removed = 0
        if self._task is not None and self._task[0] == fn:
            self._task = None
            removed = 1
        return removed + super().remove_done_callback(fn)

    def _leave_to_loop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            super().add_done_callback(task[0], context=task[1])

    def cancel(self, msg: object = None) -> bool:
        """Cancel it; the loop resumes the task."""
        self._leave_to_loop()
        return super().cancel(msg)

    def set_result(self, result: None, /) -> None:
        """Resolve it; the loop resumes the task."""
        self._leave_to_loop()
        super().set_result(result)

    def resume(self) -> None:
        """Resolve it and continue the task; no task may run."""
        if self.done():
            return
        task, self._task = self._task, None
        super().set_result(None)
        if task is not None:
            fn, context = task
            context.run(fn, self)


def _resume(loop: asyncio.AbstractEventLoop, ended: list[Awaited]) -> None:
    """Continue the tasks that a poll in a callback of the loop has ended the waits of."""
    # A loop that runs inside of a task, which asyncio does not do by itself, resumes them later.
    idle = asyncio.current_task(loop) is None
    try:
        while idle and ended:
            ended.pop(0).resume()
    finally:
        for future in ended:  # also after Ctrl-C in one of the tasks
            resolve(future)


def resolve_from_elsewhere(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """Resolve a future from outside of a callback of its loop."""
    try:
        loop.call_soon_threadsafe(resolve, future)
    except RuntimeError:
        pass  # the loop is closed: no coroutine waits in it any more


def resolve(future: asyncio.Future[None]) -> None:
    """Resolve a future in its loop, unless that was done."""
    if not future.done():
        future.set_result(None)
