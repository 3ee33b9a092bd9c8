# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""One poll of a progress engine: the doorbells, the broker, and the pending operations.

Compiled because it runs between the wake-up of a process and the task that waits there.
"""

import threading
import weakref
from collections import deque

from cpython.pythread cimport PyThread_get_thread_ident

from shmnd.ring cimport c
from shmnd.ring.process.waiting cimport LONGEST, Sleepers, WaitSetCore
from shmnd.ring.queues.connection cimport ConnectionCore

from shmnd.common.descriptors import refuse_closed
from shmnd.common.interruption import is_interruption

cdef object _ref = weakref.ref
cdef Py_ssize_t _FEW = 16  # links, which every poll reads
# Seconds between two reads of more links, for each of them: a read costs a twentieth of that.
cdef double _EACH = 10e-6

# Seconds between two calls of the functions in `_unfinished`, which no ring announces.
cdef double _STEP_PAUSE = 0.001

# Messages of the broker that one call after the other finds, from this one on, are taken together.
cdef int _ONE_BY_ONE = 16
# Seconds that they wait for each other, and seconds without any, after which none waits.
cdef double _TOGETHER = 0.001
cdef double _QUIET = 0.01


cdef class PendingCore:
    """The objects that every poll visits, as the poll sees them."""

    def __cinit__(self, *args, **kwargs):
        self._tickers = {}
        self._unfinished = {}
        self._links = {}
        self._polled_next = deque()
        self._put_off = deque()

    def add(self, obj) -> None:
        """Add an object, whose pending operations every poll polls. It is held weakly."""
        self._tickers[<size_t><void *>obj] = _ref(obj)
        self.wake_at_last()
        self._wake_from_word()

    def remove(self, obj) -> None:
        """Visit an object no longer; harmless when it has no pending operations."""
        cdef object key = <size_t><void *>obj
        self._tickers.pop(key, None)
        self._links.pop(key, None)

    def poll_soon(self, obj) -> None:
        """Let the next poll visit an object, once. Safe in a finaliser: it takes no lock."""
        self._polled_next.append(_ref(obj))
        self._wake_from_word()

    def poll_until_done(self, step) -> None:
        """Call a function now and at every poll until it returns True.

        The function is kept alive, unlike the objects that polls visit. Compiled, as `poll_soon`
        is: if a signal handler interrupts this call, the function is entered, or done.
        """
        cdef bint ended = False
        try:
            ended = step()
        finally:
            if not ended:
                self._unfinished[<size_t><void *>step] = step
                self._wait_set.wake_at(_now() + _STEP_PAUSE)
                self._wake_from_word()

    cdef void _wake_from_word(self) noexcept:
        """Let a thread that sleeps at the word of a bell sleep on the epoll from now on."""
        if self._wait_set is not None:
            self._wait_set.wake_from_word()

    cpdef put_off(self, object late):
        """Let the next poll, which comes soon, continue what an exception has interrupted."""
        self._put_off.append(late)
        if self._wait_set is not None:
            self._wait_set.ring_own()

    cdef finish(self):
        """Continue ends that were put off."""
        while self._put_off:
            try:
                late = self._put_off.popleft()
            except IndexError:
                break  # another thread took the last one
            late._finish()

    def _finish(self) -> None:
        """Continue ends that were put off: no poll comes any more."""
        self.finish()

    cdef tick(self):
        """Poll all of them once."""
        if self._put_off:
            self.finish()
        while self._polled_next:
            try:
                reference = self._polled_next.popleft()
            except IndexError:
                break  # another thread took the last one
            try:
                _tick_if_living(reference)
            except BaseException:
                self._polled_next.append(reference)  # the next poll repeats it, after the others
                raise
        if self._tickers:
            for key, reference in list(self._tickers.items()):
                if not _tick_if_living(reference) and self._tickers.get(key) is reference:
                    self._tickers.pop(key, None)
        if self._links:
            self.poll_links()
        if self._unfinished:
            for key, step in list(self._unfinished.items()):
                if step():
                    self._unfinished.pop(key, None)
        if self._unfinished:
            self._wait_set.wake_at(_now() + _STEP_PAUSE)
        elif self._tickers or self._links:
            self.wake_at_last()

    cdef wake_at_last(self):
        """Let every waiter poll in a while: a hostile peer may not ring."""
        self._wait_set.wake_at(_now() + LONGEST)

    cdef poll_links(self):
        """Tick those whose links show a change; many links are not read at every poll."""
        cdef Py_ssize_t links = len(self._links)
        cdef double now, due
        cdef bint moved
        if links > _FEW:
            now = _now()
            due = self.links_seen + links * _EACH
            if now < due:
                self._wait_set.wake_at(due)
                return
            self.links_seen = now
        for reference, pair_reference, state in list(self._links.values()):
            pair = pair_reference()
            if isinstance(pair, ConnectionCore):
                moved = (<ConnectionCore>pair).moved_from(state)
            else:
                moved = pair is None or pair._moved_from(state)
            if moved:
                _tick_if_living(reference)


cdef bint _tick_if_living(reference) except -1:
    ticker = reference()
    if ticker is None:
        return False
    ticker._tick()
    return True


cdef inline double _now() noexcept:
    return c.shmnd_now_ns() * 1e-9


cdef class CallLock:
    """The lock of a connector or listener, which a thread may take again. Its holder polls nothing.

    A signal handler, a finaliser or a trace function may poll during a call of the object.
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


cdef class EngineCore:
    """A progress engine as its polls see it."""

    cdef bint has_unsorted(self) except -1:
        """Return whether messages of the broker were read and not sorted."""
        if self._unsorted is not None:
            for each in self._unsorted:
                if len(each):
                    return True
        return False

    def _hand_over_rings(self) -> None:
        """Let all threads poll again: an exception ended a poll or a wait, which took the rings."""
        if self.alive and self._wait_set is not None:
            self._wait_set.ring_own()

    cdef bint leaves_broker(self, list readable) except -1:
        """Return whether a call leaves the messages of the broker to a later poll.

        To take one costs nearly as much as to take many. Their descriptor stays readable, so a
        thread that sleeps and any other poll takes them at once.
        """
        cdef double now, since
        if self.client.fileno() not in readable:
            return False
        now = _now()
        since = now - self.taken_at
        if since > _QUIET:
            self.taken_in_a_row = 0
        elif self.taken_in_a_row >= _ONE_BY_ONE and since < _TOGETHER:
            return True
        self.taken_in_a_row += 1
        self.taken_at = now
        return False


def poll_woken(EngineCore engine not None) -> None:
    """Poll in an event loop whose descriptor of the engine is readable."""
    poll_once(engine, others=False, woken=True)


def poll_once(
    EngineCore engine not None, bint others=True, list found=None, bint rung=False,
    bint one_of_many=False, bint woken=False,
) -> None:
    """Poll, with or without progress on the requests of other queues.

    `found` holds the descriptors that ended this thread's sleep; `rung`: rings, which it has
    taken. A call that is `one_of_many` may leave messages of the broker to a later poll; one that
    is `woken` follows the descriptor of the engine, and is called again while that is readable.
    """
    cdef WaitSetCore wait_set = engine._wait_set
    cdef PendingCore pending = engine.pending_operations
    cdef Sleepers sleepers = engine.request_progress
    cdef object client = engine.client
    cdef set polling = engine._polling
    cdef object me = PyThread_get_thread_ident()
    cdef list readable
    cdef bint ringing
    cdef bint asleep = found is not None
    cdef bint stirred
    if not engine.alive or polling is None or me in polling:
        return
    if wait_set is None or pending is None or sleepers is None:
        return  # half made; compiled methods do not check for None
    polling.add(me)
    try:
        ringing, readable = wait_set.ready(found, woken)
        rung = rung or ringing
        if one_of_many and readable and engine.leaves_broker(readable):
            readable.remove(client.fileno())
        stirred = rung or len(readable) != 0
        if readable:
            engine._handle(readable)
        if stirred and not client.alive:
            engine._reconnection.attempt(start=engine.broker_state.listens)
        if engine.has_unsorted():
            engine._sort_rest()
        if engine._undelivered:
            engine._deliver()
        if not asleep or rung or readable != [client.fileno()]:
            pending.tick()  # else the broker alone ended the sleep
        if others:
            sleepers.poll_unattended()
    except BaseException as exc:
        engine._hand_over_rings()
        if is_interruption(exc):
            raise  # first: TimeoutError of a handler is an OSError
        if engine.alive:
            refuse_closed("poll", exc)
        if engine.alive or not isinstance(exc, (ValueError, OSError)):
            raise  # else another thread has just closed the progress engine
    else:
        if stirred:
            wait_set.news()
    finally:
        polling.discard(me)
