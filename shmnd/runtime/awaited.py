# SPDX-License-Identifier: Apache-2.0
"""The future of a task that waits for a poll in a callback of its event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any, Self

__all__ = ["Awaited", "resolve", "resolve_from_elsewhere"]


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

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        """Let it fail; the loop resumes the task."""
        self._leave_to_loop()
        super().set_exception(exception)


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
