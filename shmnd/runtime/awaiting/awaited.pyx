# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The future of a task that waits for a poll in a callback of its event loop.

Compiled because a task makes one for every sleep.
"""

import contextvars

from shmnd.common.late import asyncio as _asyncio


cdef class Awaited:
    """What one task awaits, and the poll in a callback of its loop resumes.

    That task continues in the same turn of its loop. A future of asyncio resumes it in the next
    one, for which the loop asks the kernel for events once more. For asyncio this is a future: it
    has the methods and the attribute by which tasks, `wait` and `gather` recognise one.
    """

    def __init__(self, *, loop=None):
        self._loop = _asyncio.get_running_loop() if loop is None else loop

    def __await__(self):
        if not self.ended:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def __iter__(self):
        return self.__await__()

    def get_loop(self):
        """Return the loop of the task."""
        return self._loop

    def done(self) -> bool:
        """Return whether it was resolved, has failed, or was cancelled."""
        return self.ended

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self.is_cancelled

    def result(self) -> None:
        """Return None, or raise what it failed with."""
        error = self.exception()
        if error is not None:
            raise error

    def exception(self):
        """Return what it failed with, or None; CancelledError if it was cancelled."""
        if not self.ended:
            raise _asyncio.InvalidStateError("the future is pending")
        if self.is_cancelled:
            raise _asyncio.CancelledError(*(() if self.error is None else (self.error,)))
        return self.error

    def add_done_callback(self, fn, *, context=None) -> None:
        """Resume a task; further ones are called by the loop."""
        if context is None:
            context = contextvars.copy_context()
        if self.ended:
            self._loop.call_soon(fn, self, context=context)
        elif self.task is None:
            self.task, self.context = fn, context
        else:
            if self.others is None:
                self.others = []
            self.others.append((fn, context))

    def remove_done_callback(self, fn, /) -> int:
        """Resume it no more; return how many were removed."""
        cdef int removed = 0
        if self.task is not None and self.task == fn:
            self.task = self.context = None
            removed = 1
        if self.others is not None:
            left = [each for each in self.others if each[0] != fn]
            removed += len(self.others) - len(left)
            self.others = left
        return removed

    def cancel(self, msg=None) -> bool:
        """Cancel it; the loop resumes the task. False if it has ended before."""
        if self.ended:
            return False
        self.is_cancelled, self.error = True, msg
        self.end()
        return True

    def set_result(self, result, /) -> None:
        """Resolve it; the loop resumes the task."""
        if self.ended:
            raise _asyncio.InvalidStateError("the future has ended")
        self.end()

    def set_exception(self, exception, /) -> None:
        """Let it fail; the loop resumes the task."""
        if self.ended:
            raise _asyncio.InvalidStateError("the future has ended")
        self.error = exception() if isinstance(exception, type) else exception
        self.end()

    cdef end(self):
        """End it: the loop calls all that wait for it."""
        cdef list called = self.others
        self.ended = True
        self.others = None
        if self.task is not None:
            called = [(self.task, self.context), *(called or ())]
            self.task = self.context = None
        if called is not None:
            for fn, context in called:
                self._loop.call_soon(fn, self, context=context)

    cdef resume(self):
        """Resolve it and continue its task now: in a callback of its loop, outside of all tasks."""
        if self.ended:
            return
        task, context = self.task, self.context
        self.task = self.context = None
        self.end()
        if task is not None:
            context.run(task, self)

    def __repr__(self) -> str:
        state = "pending" if not self.ended else "cancelled" if self.is_cancelled else "ended"
        return f"<Awaited {state}>"


def resolve_from_elsewhere(loop, future) -> None:
    """Resolve a future from outside of a callback of its loop."""
    try:
        loop.call_soon_threadsafe(resolve, future)
    except RuntimeError:
        pass  # the loop is closed: no coroutine waits in it any more


def resolve(future) -> None:
    """Resolve a future in its loop, unless that was done."""
    if not future.done():
        future.set_result(None)
