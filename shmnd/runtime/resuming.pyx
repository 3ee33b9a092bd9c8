# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Polls in callbacks of event loops, and the tasks that continue in the same turn of their loop.

Compiled because it runs between the wake-up of a loop and its task.
"""

import asyncio

from cpython.pythread cimport PyThread_get_thread_ident

from shmnd.runtime.awaited import Awaited, resolve, resolve_from_elsewhere

cdef object _Awaited = Awaited
cdef object _set_result = asyncio.Future.set_result
cdef object _current_task = asyncio.current_task


cdef class LoopPolls:
    """The callback of a loop that polls, and the futures which that ends."""

    def __init__(self, poll):
        self.poll = poll
        self.polling = {}

    def resolve(self, loop, future) -> None:
        """Resolve a future of a loop, from any thread."""
        cdef tuple here = self.polling.get(PyThread_get_thread_ident())
        if here is None or here[0] is not loop:
            resolve_from_elsewhere(loop, future)
        elif isinstance(future, _Awaited):
            (<list>here[1]).append(future)
        else:
            resolve(future)

    def _poll_in(self, loop) -> None:
        """Poll in a callback of the loop."""
        cdef object me = PyThread_get_thread_ident()
        cdef list ended = []
        self.polling[me] = loop, ended
        try:
            self.poll()
        finally:
            self.polling.pop(me, None)
            if ended:
                _resume(loop, ended)

    def _forget_polls(self) -> None:
        """After fork: the threads are the parent's."""
        self.polling.clear()


cdef _resume(loop, list ended):
    """Continue the tasks that a poll in a callback of the loop has ended the waits of."""
    # A loop that runs inside of a task, which asyncio does not do by itself, resumes them later.
    cdef bint idle = _current_task(loop) is None
    try:
        while idle and ended:
            future = ended.pop(0)
            if future.done():
                continue
            task, future._task = future._task, None
            _set_result(future, None)
            if task is not None:
                task[1].run(task[0], future)
    finally:
        for future in ended:  # also after Ctrl-C in one of the tasks
            resolve(future)
