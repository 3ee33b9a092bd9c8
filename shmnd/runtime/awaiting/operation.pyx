# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""An overlapped operation: its steps, its one end, and the task that awaits it.

Compiled because all of it runs for each Notify, between the wake-up of an event loop and its task.
"""

import weakref
from collections import deque
from types import MethodType

from shmnd.runtime.awaiting.resuming cimport UntilWoken
from shmnd.runtime.polling cimport PendingCore

from shmnd.common.weak import without_owner as _without_owner
from shmnd.runtime.awaiting.resuming import poll_by_turns as _poll_by_turns
from shmnd.status import NdError as _NdError
from shmnd.status import Status
from shmnd.status import detail_of as _detail_of

cdef object _SUCCESS = Status.SUCCESS
cdef object _CANCELED = Status.CANCELED
cdef object _ref = weakref.ref


cdef class Operation


class _NoEngine:
    """The progress engine of an operation that no call has begun: such a one is over."""

    alive = False


cdef object _NO_ENGINE = _NoEngine()


cdef class Deliveries:
    """The operations that an overlapped file has to deliver, as their ends enter them."""

    cdef public object _queue
    cdef public object _readiness
    cdef public bint _closed

    def __cinit__(self, *args, **kwargs):
        self._queue = deque()

    def _keep_newest(self, count) -> None:
        """Keep so many operations, the last that have ended, until `_keep_all`."""
        self._queue = deque(self._queue, count)

    def _keep_all(self) -> None:
        """Keep all operations from now on, and those that are there."""
        if self._queue.maxlen is not None:
            self._queue = deque(self._queue)  # no code in Python runs between the two steps

    cdef enter(self, Operation ended):
        """Append an operation that has ended, once."""
        if self._closed:
            return
        if not ended.delivered:
            self._queue.append(ended)
            ended.delivered = True
        self._readiness.set()


cdef class Operation:
    """What the library does with an operation; programs use `shmnd.overlapped.Overlapped`."""

    cdef object __weakref__
    cdef public object call
    cdef readonly object _engine
    cdef readonly object _owner  # a weak reference, or None
    cdef readonly object _file
    cdef readonly object _step
    cdef readonly object _cancel_hook
    cdef readonly object _final  # None until it is over
    cdef readonly object _detail
    cdef readonly object _keeps
    cdef public object _waits_for
    cdef readonly list _waiters  # what its end calls
    # The thread that sets it ends the operation. A lock would do as well, but not inside a
    # finaliser that interrupts its holder.
    cdef bint claimed
    cdef bint delivered

    def __cinit__(self):
        self.call = "Overlapped"
        self._engine = _NO_ENGINE

    def __init__(self, engine, owner, file, call, step=None, cancel=None):
        self.call = call
        self._engine = engine
        self._owner = None if owner is None else _ref(owner)
        self._file = file
        self._step = _without_owner(step) if type(step) is MethodType else step
        self._cancel_hook = _without_owner(cancel) if type(cancel) is MethodType else cancel
        self._detail = self._waits_for = ""
        self._waiters = []
        if step is not None:
            engine.pending_operations.add(self)

    def __await__(self):
        """Wait in a task until it is over: poll by turns, then sleep. NdError when it failed."""
        cdef double window
        if self._final is None and self._engine.alive:
            if self._step is not None:
                self._tick()  # other news makes the descriptor of the engine readable
            if self._final is None and self._owner is not None:
                window = self.poll_window()
                if window > 0:
                    yield from _poll_by_turns(self._owner, self._over, window)
            if self._final is None:
                yield from UntilWoken(self._engine, self._waiters, self._over).__await__()
        if self._final is not _SUCCESS:
            self._raise_if_failed()

    cdef double poll_window(self) except -1:
        """Return the seconds for which its object is polled before the task sleeps."""
        owner = self._owner()
        return 0.0 if owner is None else owner._poll_window()

    def _complete(self, status, detail="") -> bool:
        """End the operation, deliver it and wake. Return False if it was over before."""
        if self.claimed:
            return False
        self.claimed = True
        self._detail = detail
        self._final = status
        self.finish()
        return True

    cdef finish(self):
        """Carry out its end. Where a handler of a signal raises, the next poll continues."""
        cdef PendingCore pending = <PendingCore?>self._engine.pending_operations
        try:
            if self._step is not None:
                pending.remove(self)
            self._step = self._cancel_hook = None
            owner = None if self._owner is None else self._owner()
            if owner is not None:
                owner._forget(self)
            if self._file is not None:
                (<Deliveries?>self._file).enter(self)
            if self._waiters:
                for wake in list(self._waiters):
                    wake()
            self._engine.news()
        except BaseException:
            pending.put_off(self)
            raise
        self._keeps = None  # last: this may release it

    def _finish(self) -> None:
        """Continue an end that was put off; the next poll calls it."""
        self.finish()

    def _tick(self) -> None:
        """Take the operation's next step, as the progress engine does at every poll."""
        step = self._step
        if step is None or self._final is not None:
            return
        try:
            status = step()
        except _NdError as err:
            self._complete(err.status, _detail_of(err))
            return
        if status is not None:
            self._complete(status)

    def _keeping(self, kept):
        """Keep an object alive until the operation is over; return the operation."""
        self._keeps = kept
        if self._final is not None:
            self._keeps = None
        return self

    def _cancel(self) -> None:
        """End it with CANCELED; an operation whose hook refuses continues."""
        hook = self._cancel_hook
        if hook is None or hook(self):
            self._complete(_CANCELED)

    def _over(self) -> bool:
        """Return whether it is over."""
        return self._final is not None

    def _raise_if_failed(self) -> None:
        """Raise the error of its status, unless that is a success."""
        raise NotImplementedError
