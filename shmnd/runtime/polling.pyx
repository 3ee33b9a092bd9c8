# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""One poll of a progress engine: the doorbells, the broker, and the pending operations.

Compiled because it runs between the wake-up of a process and the task that waits there.
"""

import threading
import time
import weakref
from collections import deque

from cpython.pythread cimport PyThread_get_thread_ident

from shmnd.ring.process.waiting cimport Sleepers, WaitSetCore

from shmnd.common.descriptors import refuse_closed

cdef object _ref = weakref.ref
cdef Py_ssize_t _FEW = 16  # links, which every poll reads
# Seconds between two reads of more links, for each of them: a read costs a twentieth of that.
cdef double _EACH = 10e-6


cdef class PendingCore:
    """The objects that every poll visits, as the poll sees them."""

    def __cinit__(self, *args, **kwargs):
        self._tickers = {}
        self._lingering = {}
        self._links = {}
        self._hurried = deque()

    def add(self, obj) -> None:
        """Have an object poll its pending operations at every poll. It is held weakly."""
        cdef object key = <size_t><void *>obj
        cdef dict tickers = self._tickers
        tickers[key] = _ref(obj, lambda _: tickers.pop(key, None))
        self._wake_at_last()

    def remove(self, obj) -> None:
        """Visit an object no longer; harmless when it has no pending operations."""
        cdef object key = <size_t><void *>obj
        self._tickers.pop(key, None)
        self._links.pop(key, None)

    cdef tick(self):
        """Poll all of them once."""
        while self._hurried:
            try:
                reference = self._hurried.popleft()
            except IndexError:
                break  # another thread took the last one
            _tick_if_living(reference)
        for reference in list(self._tickers.values()):
            _tick_if_living(reference)
        if self._links:
            self.poll_links()
        for key, go_on in list(self._lingering.items()):
            if go_on():
                self._lingering.pop(key, None)
        if self._lingering:
            self._wake_to_linger()
        elif self._tickers or self._links:
            self._wake_at_last()

    cdef poll_links(self):
        """Tick those whose links show a change; many links are not read at every poll."""
        cdef Py_ssize_t links = len(self._links)
        cdef double now, due
        if links > _FEW:
            now = time.monotonic()
            due = self.links_seen + links * _EACH
            if now < due:
                self._wait_set.wake_at(due)
                return
            self.links_seen = now
        for reference, pair_reference, state in list(self._links.values()):
            pair = pair_reference()
            if pair is None or pair._moved_from(state):
                _tick_if_living(reference)


cdef _tick_if_living(reference):
    ticker = reference()
    if ticker is not None:
        ticker._tick()


cdef class CallLock:
    """The lock of a connector or listener, which a thread may take again. Its holder polls nothing.

    A signal handler, a finaliser or a trace function may poll in the midst of a call of the object.
    An event delivered then would find the object half changed, or not yet entered as its target.
    It waits for the next poll. Compiled, so that no signal handler runs between taking and marking.
    """

    cdef object _acquire, _release
    cdef set _polling
    cdef int _depth
    cdef bint _marked
    cdef unsigned long _holder

    def __init__(self, engine):
        lock = threading.RLock()
        self._acquire, self._release = lock.acquire, lock.release
        self._polling = engine._polling

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; return whether it was taken."""
        if not self._acquire(blocking):
            return False
        self._depth += 1
        if self._depth == 1:
            me = self._holder = PyThread_get_thread_ident()
            self._marked = me not in self._polling
            if self._marked:
                self._polling.add(me)
        return True

    def release(self) -> None:
        """Release it."""
        self._depth -= 1
        if self._depth == 0 and self._marked:
            self._polling.discard(PyThread_get_thread_ident())
        self._release()

    @property
    def held_here(self) -> bool:
        """Whether this thread holds it: what asks interrupts a call, as a signal handler does."""
        return self._depth > 0 and self._holder == PyThread_get_thread_ident()


def poll_once(engine, bint keep=True, list found=None, bint rung=False) -> None:
    """Poll, with or without progress on the requests of other queues.

    `found` holds the descriptors that ended this thread's sleep; `rung`: rings, which it has
    taken.
    """
    cdef WaitSetCore wait_set = engine._wait_set
    cdef PendingCore pending = engine.pending_operations
    cdef Sleepers sleepers = engine.request_progress
    cdef set polling = engine._polling
    cdef object me = PyThread_get_thread_ident()
    cdef list readable
    cdef bint ringing
    cdef bint asleep = found is not None
    cdef bint stirred
    if engine._ended or me in polling:
        return
    polling.add(me)
    try:
        ringing, readable = wait_set.ready(found)
        rung = rung or ringing
        stirred = rung or len(readable) != 0
        if readable:
            engine._handle(readable)
        if stirred and not engine.client.alive:
            engine._reconnection.attempt(start=engine.broker_state.listens)
        if engine._mail:
            engine._deliver()
        if not asleep or rung or readable != [engine.client.fileno()]:
            pending.tick()  # else the broker alone ended the sleep
        if keep:
            sleepers.keep()
    except (ValueError, OSError) as exc:
        if not engine._ended:
            refuse_closed("poll", exc)
            raise  # else another thread has just closed the progress engine
    except BaseException:
        engine._hand_over_rings()
        raise
    else:
        if stirred:
            wait_set.news()
    finally:
        polling.discard(me)
