# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Locks for the time of a `with` block, which stay taken in no case.

A handler of a signal runs between two instructions of Python, and may raise there. Behind the
`__enter__` of a lock, which has taken it then, and before the block, CPython 3.14 has such a place:
`with lock:` leaves it taken for ever. So the block is entered by an object of its own. It takes the
lock in compiled code, where no handler runs, and releases it when it is dropped, which an exception
between the two does.

A child that a handler forks in such a block continues it. Where its locks are made anew, as another
thread may have had them, they are other objects: a guard releases the one that it has taken, and
never one that was reset, which a thread of the child may have.
"""

import os
import time
from _thread import allocate_lock as _allocate_lock

from shmnd.common.brief_waits import too_late


cdef unsigned int _forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


cdef class Guard:
    """Releases the lock that the `__enter__` of its kind has taken."""

    cdef object _lock
    cdef bint _taken
    cdef unsigned int _born

    def __init__(self, lock):
        self._lock = lock
        self._born = _forks

    def __exit__(self, *exc) -> None:
        self.release()

    def __dealloc__(self):
        self.release()

    cdef int release(self) except -1:
        if self._taken:
            self._taken = False
            try:
                self._lock.release()
            except RuntimeError:  # a child that a handler forked in a wait does not take it again
                if self._born == _forks:
                    raise
        return 0


cdef class Held(Guard):
    """A lock, or a condition, for the time of a `with` block: `with Held(lock):`."""

    def __enter__(self) -> None:
        self._lock.acquire()
        self._taken = True


cdef class Attempted(Guard):
    """A lock for the time of a `with` block, if it is free within some seconds: `as` is True
    then."""

    cdef double _seconds

    def __init__(self, lock, double seconds=0):
        Guard.__init__(self, lock)
        self._seconds = seconds

    def __enter__(self) -> bool:
        self._taken = self._lock.acquire(False) or (
            self._seconds > 0 and self._lock.acquire(True, self._seconds)
        )
        return self._taken


cdef class InTime(Guard):
    """A lock for the time of a `with` block. TooLate when it is not free until a moment."""

    cdef object _call
    cdef double _until

    def __init__(self, lock, double until, call):
        Guard.__init__(self, lock)
        self._until, self._call = until, call

    def __enter__(self) -> None:
        self._taken = self._lock.acquire(False) or self._lock.acquire(
            True, max(0.0, self._until - time.monotonic())
        )
        if not self._taken:
            raise too_late(self._call)


cdef class Condition:
    """A condition of a lock that its holder may take again. A wait ends with the lock taken.

    Except in a child that a handler forks within the wait: another thread of the parent may have
    the lock there. The child does not take it, and a second wait there raises RuntimeError.
    Also where a handler raises: between the release of the lock and the sleep, and before it is
    taken again, `threading.Condition` has places where the exception would leave it free.
    """

    cdef object _lock
    cdef list _waiters

    def __init__(self, lock):
        self._lock = lock
        self._waiters = []

    def wait(self, timeout=None) -> bool:
        """Release the lock and sleep; return False if nothing woke this thread in time."""
        cdef object waiter = _allocate_lock()
        cdef object taken
        cdef unsigned int born = _forks
        waiter.acquire()
        self._waiters.append(waiter)
        try:
            taken = self._lock._release_save()
        except BaseException:
            self._waiters.remove(waiter)
            raise
        try:
            if timeout is None:
                return waiter.acquire()
            return waiter.acquire(True, timeout) if timeout > 0 else waiter.acquire(False)
        finally:
            if _forks == born:  # else a thread that is not in this process may have it
                self._lock._acquire_restore(taken)
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def notify_all(self) -> None:
        """Wake all that wait. The caller has the lock."""
        cdef list waiters = self._waiters
        self._waiters = []
        for waiter in waiters:
            waiter.release()
