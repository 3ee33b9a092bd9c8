# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Polls in callbacks of event loops, and the tasks that continue in the same turn of their loop.

Compiled because it runs between the wake-up of a loop and its task, and before the next sleep.
"""

import sys
import time

cimport cython
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport uint64_t

from shmnd.common.closing cimport end_of_life
from shmnd.ring.process.waiting cimport Sleepers
from shmnd.runtime.awaiting.awaited cimport Awaited

from shmnd.common.late import asyncio as _asyncio
from shmnd.runtime.awaiting.awaited import resolve as _resolve
from shmnd.runtime.awaiting.awaited import resolve_from_elsewhere

cdef object _current_task = None  # functions of asyncio, from the first wait in a loop on
cdef object _get_running_loop = None
cdef object _now = time.monotonic
cdef object _is_finalizing = sys.is_finalizing


cdef int _have_asyncio() except -1:
    global _current_task, _get_running_loop
    if _current_task is None:
        _get_running_loop = _asyncio.get_running_loop
        _current_task = _asyncio.current_task
    return 0


@cython.no_gc_clear  # its parts are used without a check for None
cdef class LoopPolls:
    """The callback of a loop that polls, the loops that have it, and the futures which it ends."""

    def __cinit__(self, int fd, poll, Sleepers sleepers not None):
        self._fd = fd
        self.poll = poll  # without keeping requests of other queues in progress
        self.sleepers = sleepers
        self._waiting = {}
        self.polling = {}

    cpdef begin(self, object loop, object wake):
        """Let a loop poll whenever the descriptor is readable; `leave` calls `wake`."""
        cdef dict waiting = self._waiting.get(loop)
        _have_asyncio()
        if waiting is None:
            self._forget_closed_loops()
            loop.add_reader(self._fd, Reader(self, loop))
            waiting = self._waiting[loop] = {}
        waiting[<size_t><void *>wake] = wake

    cpdef end(self, object loop, object wake):
        """End the wait that `begin` began; harmless when none began.

        The loop keeps its reader, because the next wait most often comes soon. A timer that takes
        it out would cost each sleep of the loop more than the reader does.
        """
        cdef dict waiting = self._waiting.get(loop)
        if waiting is not None:
            waiting.pop(<size_t><void *>wake, None)

    cdef stop(self, object loop):
        """Take the reader out of a loop that has no waiter; the next poll takes the ring.

        The reader is removed last: what a handler of a signal has interrupted is repeated when the
        loop calls it again.
        """
        self._waiting.pop(loop, None)
        self.sleepers.end(None)  # what `end_for_now` has left to do
        try:
            self._remove_reader(loop)
        finally:
            # The handler of a signal has begun a wait, and may have ended it.
            if loop in self._waiting:
                loop.add_reader(self._fd, Reader(self, loop))

    def _forget_closed_loops(self) -> None:
        for closed in [each for each in list(self._waiting) if each.is_closed()]:
            self._waiting.pop(closed, None)

    def _remove_reader(self, loop) -> None:
        raise NotImplementedError

    cpdef resolve(self, object loop, object future):
        """Resolve a future of a loop, from any thread."""
        cdef tuple here = self.polling.get(PyThread_get_thread_ident())
        if here is None or here[0] is not loop:
            resolve_from_elsewhere(loop, future)
        elif isinstance(future, Awaited):
            (<list>here[1]).append(future)
        else:
            _resolve(future)

    def _poll_in(self, loop) -> None:
        """Poll in a callback of the loop, if a task waits there."""
        cdef object me = PyThread_get_thread_ident()
        cdef list ended = []
        cdef uint64_t polls_before
        if not self._waiting.get(loop):
            self.stop(loop)
            return
        self.polling[me] = loop, ended
        try:
            self.poll()
        finally:
            self.polling.pop(me, None)
            polls_before = self.sleepers.unattended_polls
            if ended:
                _resume(loop, ended)
        if self.sleepers.unattended_polls == polls_before:  # else by a task that sleeps again
            self.sleepers.poll_unattended()

    def close_in_child(self) -> None:
        """Forget the loops and the threads after fork: they are the parent's."""
        self._waiting.clear()
        self.polling.clear()


@cython.no_gc_clear  # its end needs both
cdef class Reader:
    """What a loop calls when the descriptor is readable.

    A loop that is closed drops it, and is kept no longer then.
    """

    cdef LoopPolls loops
    cdef object loop

    def __init__(self, LoopPolls loops not None, loop) -> None:
        self.loops = loops
        self.loop = loop

    def __call__(self) -> None:
        """Poll if a task waits; take the reader out of the loop otherwise."""
        self.loops._poll_in(self.loop)

    def __del__(self):
        if not _is_finalizing():  # else the modules that it needs may be gone
            end_of_life(self.loops._forget_closed_loops)


cdef _resume(loop, list ended):
    """Continue the tasks that a poll in a callback of the loop has ended the waits of."""
    # A loop that runs inside of a task, which asyncio does not do by itself, resumes them later.
    cdef bint idle = _current_task(loop) is None
    try:
        while idle and ended:
            (<Awaited>ended.pop(0)).resume()
    finally:
        for future in ended:  # also after Ctrl-C in one of the tasks
            _resolve(future)


@cython.no_gc_clear  # its call needs all of them
cdef class Wake:
    """What ends the sleep of a task: it resolves the future of that task, from any thread."""

    cdef LoopPolls loops
    cdef object loop
    cdef Awaited future

    def __call__(self) -> None:
        """Resolve it."""
        self.loops.resolve(self.loop, self.future)


@cython.no_gc_clear  # as above
cdef class UntilWoken:
    """Sleep in a task until an entry of its own in `waiters` is called; not if `over` returns true.
    """

    def __cinit__(self, engine, list waiters not None, over):
        self.loops = <LoopPolls?>engine.loops  # not None: its methods would not check
        self.sleepers = <Sleepers?>engine.request_progress
        self.waiters = waiters
        self.over = over

    def __await__(self):
        """Sleep, once."""
        cdef LoopPolls loops = self.loops
        cdef Sleepers sleepers = self.sleepers
        cdef list waiters = self.waiters
        cdef object loop
        cdef Wake wake
        cdef Awaited future
        _have_asyncio()
        loop = _get_running_loop()
        future = Awaited.__new__(Awaited)
        future._loop = loop
        wake = Wake.__new__(Wake)
        wake.loops, wake.loop, wake.future = loops, loop, future
        loops.begin(loop, wake)
        waiters.append(wake)
        try:
            sleepers.begin(wake)
            # Another thread may have ended it before it could see the waiter.
            if not self.over() and not future.ended:
                future._asyncio_future_blocking = True
                yield future
                future.result()
        finally:
            waiters.remove(wake)
            try:
                sleepers.end_for_now(wake)
            finally:
                loops.end(loop, wake)


def poll_by_turns(reference, over, double window):
    """Poll in a task for so many seconds before it sleeps; all other tasks run between two polls.

    An answer that comes at once then wakes no process: neither a doorbell nor a sleep is needed.
    `reference` is a weak one: the object is not kept alive.
    """
    cdef object polled = reference()
    cdef double until = _now() + window
    if polled is None:
        return
    polled._begin_turns()
    try:
        while not over():
            polled = None
            yield  # the loop runs its ready callbacks, and this task again
            polled = reference()
            if polled is None or over():
                return
            polled._take_turn()
            if _now() >= until:
                return
    finally:
        polled = reference()
        if polled is not None:
            polled._end_turns()
