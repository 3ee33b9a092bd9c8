# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The compiled part of a subscriber: it takes samples of all its publishers in turn.

What happens now and then (publishers that come and go, waiting) is in `subscriber.py`.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint32_t, uint64_t

from shmnd.common.timeouts cimport is_plain_timeout
from shmnd.ipc.topic.source cimport Source
from shmnd.ipc.common.gate_c cimport shmnd_futex_sleep
from shmnd.ipc.topic.topic_c cimport *
from shmnd.ring.c_waiting cimport (
    shmnd_on_one_cpu,
    shmnd_window_count,
    shmnd_window_hit,
    shmnd_window_next,
    shmnd_yield,
)
from shmnd.ring.process.forks cimport forks

from shmnd.common.arguments import seconds
from shmnd.common.exits import stay_at_exit
from shmnd.ipc.errors import Closed
from shmnd.status import OWN_IN_CHILD, NdError

cdef extern from "wire/atomics.h" nogil:
    void shmnd_pause()

cdef uint64_t _CHECK_NS = 10_000_000
cdef uint64_t _KEEP_LOCK_NS = 3_000
cdef uint32_t _CHECK_MISSES = 256
cdef int _FIRST_POLLS = 100
cdef double _AT_COUNTER = 0.01  # seconds
cdef tuple _NUMBERS = (int, float)


cdef bint may_sleep_at_counter(Source source) noexcept:
    """Return whether the publisher wakes sleepers at its counter for each sample of this source."""
    return not source.closed and source.r.seated and source.r.policy != SHMND_DROP_NEWEST


cdef bint finds(Source source) except *:
    """Do what a poll does before it takes a sample; return whether there may be one then.

    A poll is due also where the lines have moved and where there is a seat, with no sample there.
    """
    cdef shmnd_reading before
    if not source.ready:
        return False
    if source.has_left:
        return True
    try:
        if not source.settled:
            source.find_seat()
        before = source.r
        before.where = source.where
        # Samples that are left in the lines of before come first.
        if before.where != source.r.where and not shmnd_reading_ready(&before):
            memory = source.neighbour.view(before.where >> 8, 0)
            source.enter_lines((before.where, memory))
    except (NdError, ValueError):
        return True  # a receive raises it, or waits until it is over
    return source.ready


cdef class ReaderCore:
    """The compiled part of a subscriber."""

    def __cinit__(self):
        self.born = forks
        self.sources = []
        self.spin = 50e-6

    cdef int enter(self, str call) except -1:
        if self.closed or self.born != forks:
            stay_at_exit()
            raise Closed(f"{call}: the subscriber of topic {self.topic!r} "
                         + ("is closed" if self.born == forks else OWN_IN_CHILD))
        return 0

    @property
    def _sources(self):
        return list(self.sources)

    def _require_open(self, call):
        """Raise Closed unless the subscriber can be used here."""
        self.enter(call)

    def _add(self, Source source not None):
        source.require_lines()
        self.sources.append(source)

    def _remove(self, Source source not None):
        """Read from it no more, and count what it lost, once."""
        if source in self.sources:
            self.sources.remove(source)
            self._lost_before += source.lost

    def _shut(self):
        self.closed = True
        self.kept = None

    # Handlers of signals run in Python code alone, and what they raise leaves it. So a sample that
    # such code waits for goes into a box, of which the caller keeps it for the next call.

    def _keep(self, list box):
        """Keep a sample that was taken for a call which ends with an exception."""
        if box and not self.closed:
            if self.kept is None:
                self.kept = []
            self.kept.append(box.pop())

    cdef object take(self):
        """Return the next sample of any publisher, in turn."""
        cdef Py_ssize_t _, n = len(self.sources)
        if self.kept is not None:
            sample = self.kept.pop(0)
            if not self.kept:
                self.kept = None
            return sample
        if n == 1:
            source = <Source>self.sources[0]
            return (<Source>source).next()
        for _ in range(n):
            if self.turn >= n:
                self.turn = 0
            source = <Source>self.sources[self.turn]
            self.turn += 1
            sample = (<Source>source).next()
            if sample is not None:
                return sample
            if len(self.sources) != n:
                break
        return None

    def _ready(self):
        """Return whether a poll may find something."""
        if self.kept is not None:
            return True
        for source in self.sources:
            if source.ready:
                return True
        return False

    def _finds(self):
        """Return whether a receive has something: a sample, most likely, or an error."""
        if self.kept is not None:
            return True
        for source in self._sources:
            if finds(source):
                return True
        return False

    def _find_seats(self):
        """Take the seats that publishers have written; return whether there was one."""
        cdef bint found = False
        for source in self._sources:
            if source.find_seat():
                found = True
        return found

    def _require_own(self, call):
        """Raise Closed in a child that was forked off, be it within a call of its parent."""
        if self.born != forks:
            self.enter(call)

    def _take(self, list box, call="Subscriber.receive"):
        """Take the next sample into a box, if there is one.

        A child that a handler of a signal forked takes none of its parent's.
        """
        if self.born != forks:
            self.enter(call)
        sample = self.take()
        if sample is None:
            return False
        box.append(sample)
        return True

    def _take_armed(self, list box):
        """Take the next sample for a thread that sleeps, or return whether a poll finds anything.

        Return False when neither is there and the publishers ring for the next one. First comes the
        sample, and few calls, for it is what most wake-ups are for.
        """
        if box or not self.closed and self._take(box) or self._anything():
            return True
        for source in self.sources:
            (<Source>source).doze()
        return not self.closed and self._take(box) or self._anything()

    def try_receive(self):
        """Return the next sample if there is one, else None. Never waits."""
        cdef uint64_t now
        cdef bint alone
        if self.closed or self.born != forks:
            self.enter("Subscriber.try_receive")
        sample = self.take()
        if sample is not None:
            return sample
        # A program that polls in vain notices now and then which publishers came and went.
        self.misses += 1
        alone = not self.sources and not self._wait_for_publisher  # it raises that at once
        if (self.misses % _CHECK_MISSES == 0 or self._has_descriptor or self._trouble or alone):
            now = shmnd_now_ns()
            if (now - self.checked_ns > _CHECK_NS or self._has_descriptor or self._trouble
                    or alone):
                self._trouble = False
                self.checked_ns = now
                self._check_members()
                sample = self.take()
                if sample is None:
                    self._require_publisher("Subscriber.try_receive")
                return sample
        return None

    def receive(self, timeout=None):
        """Return the next sample; wait for it. TimeoutError when `timeout` seconds end first."""
        cdef uint64_t started
        if self.closed or self.born != forks:
            self.enter("Subscriber.receive")
        if not is_plain_timeout(timeout):
            seconds("Subscriber.receive", 0, "timeout", timeout)
        sample = self.take()
        if sample is not None:
            return sample
        if self.spin > 0 and (timeout is None or type(timeout) in _NUMBERS and timeout > 0):
            sample = self.first_polls()
            if sample is not None:
                shmnd_window_hit(&self.poll_window)
                return sample
        started = shmnd_now_ns()
        box = []
        try:
            self._receive_later(timeout, box)
        except BaseException:
            self._keep(box)
            raise
        shmnd_window_count(&self.poll_window, self._spin_ns(), shmnd_now_ns() - started, True)
        # As the last step: handlers of signals that came during the wait run now, and what they
        # raise keeps the sample.
        try:
            PyErr_CheckSignals()
            if self.born != forks:
                self.enter("Subscriber.receive")
        except BaseException:
            self._keep(box)
            raise
        return box[0]

    def _receive_into(self, list box):
        """Receive into a box."""
        box.append(self.receive())

    def _may_sleep_at_counter(self):
        """Return whether there is one publisher, and its counter wakes this subscriber.

        Not so where a thread, a task or a descriptor of it needs the ring, too.
        """
        sources = list(self.sources)  # another thread may change it
        return (len(sources) == 1 and may_sleep_at_counter(sources[0])
                and not self._waiter.waited_for)

    def _sleep_at_counter(self, double longest, list box):
        """Sleep at the counter of the only publisher for a moment; return whether a sample came.

        It wakes sooner there than by a ring, and attends to nothing else of the process meanwhile:
        so the moment is short, and a sleep until a ring follows it.
        """
        cdef uint64_t now = shmnd_now_ns()
        cdef uint64_t end = now + <uint64_t>(min(longest, _AT_COUNTER) * 1e9)
        cdef const void *counter
        cdef uint32_t seen
        cdef Source source
        sources = list(self.sources)  # another thread may change it
        if not sources:
            return False
        source = sources[0]
        while now < end and may_sleep_at_counter(source) and len(self.sources) == 1:
            seen = shmnd_reading_arm_counter(&source.r)
            # In this order: one that needs a ring counts before it asks for one. Then the request
            # was overwritten here, and it polls once more.
            if self._waiter.waited_for:
                source.doze()
                self._waiter.wake()
                return False
            counter = shmnd_head_counter(source.r.head)
            if self._take(box):
                return True
            if self._anything():
                return False
            with nogil:
                shmnd_futex_sleep(counter, seen, end - now)
            PyErr_CheckSignals()
            if self._take(box):
                return True
            now = shmnd_now_ns()
        return False

    cdef object first_polls(self):
        """Poll for a few microseconds, before a clock is read or a function of Python called.

        The answer of a publisher that polls comes this early, and would wait for their end.
        """
        cdef int _
        for _ in range(_FIRST_POLLS):
            shmnd_pause()
            for source in self.sources:
                if shmnd_reading_ready(&(<Source>source).r):
                    sample = self.take()
                    if sample is not None:
                        return sample
                    break  # another thread may have changed the list
        return None

    def _spin_for(self, timeout, list box):
        """Poll twice as long as waits last, without the interpreter's lock but for the start."""
        cdef uint64_t window = shmnd_window_next(&self.poll_window, self._spin_ns(), 2)
        if timeout is not None and timeout < window * 1e-9:
            window = <uint64_t>(timeout * 1e9)
        sample = self.spin_for(shmnd_now_ns() + window)
        if sample is None:
            return False
        box.append(sample)
        return True

    cdef uint64_t _spin_ns(self) noexcept:
        """Return the nanoseconds of `spin`."""
        return <uint64_t>(min(self.spin, 1e9) * 1e9) if self.spin > 0 else 0

    cdef object spin_for(self, uint64_t end):
        cdef const shmnd_reading *readings[16]
        cdef uint64_t start = shmnd_now_ns(), stop
        cdef int i, n
        cdef list held
        cdef bint yields
        while True:
            for _ in range(64):
                sample = self.take()
                if sample is not None:
                    return sample
                shmnd_pause()
            now = shmnd_now_ns()
            if now >= end:
                return None
            if now - start < _KEEP_LOCK_NS:
                continue
            PyErr_CheckSignals()
            if self.born != forks:
                self.enter("Subscriber.receive")
            held = list(self.sources)
            n = 0
            for source in held:
                if n < 16 and not (<Source>source).closed:
                    readings[n] = &(<Source>source).r
                    n += 1
            with nogil:
                # On a single CPU the publisher may have the same one: it runs when this one yields.
                yields = shmnd_on_one_cpu()
                stop = shmnd_now_ns() + 20000
                if stop > end:
                    stop = end
                while shmnd_now_ns() < stop:
                    if yields:
                        shmnd_yield()
                    for i in range(n):
                        if shmnd_reading_ready(readings[i]):
                            stop = 0
                    shmnd_pause()
            if self.closed:
                return None
