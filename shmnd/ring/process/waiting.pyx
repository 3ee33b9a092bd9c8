# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Sleeping in the kernel: the part of `shmnd.runtime.waiting` between a doorbell and the result.

Because of the GIL, each call here is atomic for all threads of the process. A leader writes its
fields without holding the condition of the followers. Therefore a follower increments
`_followers` before it reads `_generation` and `_leader`, and the leader reads `_followers` after
it wrote them: at least one of the two sees the other.

A leader may sleep at the word of its queue's bell in place of the epoll. It sets `word` before it
polls and reads what may keep it from sleeping; others write that before `wake_from_word` reads
`word`: again, at least one of the two sees the other.
"""

import os
import threading

from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.process.ringing cimport MOST_EVENTS, epoll_event, epoll_wait

from shmnd.common.descriptors import refuse_closed


LONGEST_SLEEP = 1.0
"""Seconds after which a sleeper polls in any case; every event wakes it before."""
LONGEST = LONGEST_SLEEP
# The longest sleep at a word, in which no message of the broker and no death of a peer is noticed.
AT_WORD_NS = 10_000_000


def set_longest_sleep(seconds: float) -> None:
    """Set `LONGEST_SLEEP` for compiled waits: tests do, where it would hide a lost wake-up."""
    global LONGEST
    LONGEST = seconds


def set_longest_at_word(seconds: float) -> None:
    """Set the longest sleep at the word of a bell, for tests; with 0.0 no thread sleeps there."""
    global AT_WORD_NS
    AT_WORD_NS = <uint64_t>(seconds * 1e9)


cdef int milliseconds_until(uint64_t until) except -1:
    """Return the milliseconds to sleep, rounded up; 0 when the time is over.

    `until` is in nanoseconds of the monotonic clock; 0 is never.
    """
    cdef uint64_t now
    cdef double longest = LONGEST
    if until:
        now = c.shmnd_now_ns()
        if now >= until:
            return 0
        longest = min(longest, <double>(until - now) * 1e-9)
    return <int>min(longest * 1e3 + 1, 1e9)


cdef class Sleepers:
    """The compiled part of `RequestProgress`: a thread that sleeps while no other one does."""

    def __cinit__(self):
        self._sleepers = set()
        self._watched = set()
        self._queues = {}
        # Taken again by a finaliser that interrupts its holder.
        self._lock = threading.RLock()

    cpdef begin(self, object sleeper):
        """Register a thread, a task or a descriptor that is about to sleep."""
        self._sleepers.add(sleeper)
        if self._wait_set is not None:
            self._wait_set.wake_from_word()  # rings for this sleeper come at the epoll
        self.poll_unattended()

    cpdef bint begin_if_alone(self, object sleeper) except -1:
        """Register a thread that is about to sleep, at its queue or for anything else.

        Return False, and register nothing, if another thread sleeps or another queue needs polls.
        """
        if self._sleepers or not self.others_need_no_polls(sleeper):
            return False
        self._sleepers.add(sleeper)
        return True

    cpdef bint others_need_no_polls(self, object sleeper) except -1:
        """Return whether no other queue has requests in progress.

        Then the queues announce their next requests by a ring.
        """
        if self._watched:
            return False
        return not self._queues or self._others_are_idle(list(self._queues.values()), sleeper, True)

    cpdef end(self, object sleeper):
        """End a sleep; harmless when it never began."""
        # First: a queue that is added reads the sleepers after it was entered.
        self._sleepers.discard(sleeper)
        if not self._sleepers and not self._watched and not self._queues:
            return
        with self._lock:  # against a thread that chooses queues to ring, for this sleep as well
            if self._sleepers:
                self.poller_left()
                return
            if self._watched:
                self._unwatch()
            self._others_are_idle(list(self._queues.values()), None, False)

    cpdef end_for_now(self, object sleeper):
        """End the sleep of a thread or task that most often begins the next one soon.

        Until then the other queues announce a request, as they do while it sleeps, which costs a
        ring for the next request of each. `end` ends that.
        """
        if self._watched or len(self._sleepers) > 1:
            self.end(sleeper)
        else:
            self._sleepers.discard(sleeper)

    def poller_left(self, queue=None) -> None:
        """Note that a thread no longer polls a queue: the threads that still sleep may have to."""
        if not self._sleepers:
            return
        if queue is not None and not queue._busy and not queue._attended:
            queue._announcing = True  # it wakes them when it has a request
        else:
            self._poll_soon()

    cpdef poll_unattended(self):
        """Poll the queues that no other thread polls."""
        self.unattended_polls += 1
        if self._sleepers and not self.others_need_no_polls(None):
            self._poll_unattended()


cdef class WaitSetCore(RingsCore):
    """The epoll of a process, and the thread that may sleep on it."""

    def __cinit__(self):
        self._visited, self._links = [], ()

    def _sleep_on(self, epoll: int, own: int, nudge: int) -> None:
        """Use these descriptors; -1 when they are closed."""
        self.epoll, self.own, self.nudge = epoll, own, nudge
        self.rang, self.repeats = -1, 0
        self.word = NULL

    cdef bint is_led_elsewhere(self) noexcept:
        return self._leader != 0 and self._leader != PyThread_get_thread_ident()

    def _become_leader(self, polling: bool = False) -> bool:
        """Become or remain the thread that sleeps in the kernel; return False if another is."""
        if self.is_led_elsewhere():
            return False
        self._leader = PyThread_get_thread_ident()
        self._polling = polling
        return True

    cdef bint leads_alone(self) noexcept:
        """Return whether this thread is the leader, and has no followers."""
        return self._leader == PyThread_get_thread_ident() and self._followers == 0

    cdef bint sleep_once(self, uint64_t seen, int milliseconds, list others) except -1:
        """Sleep in the kernel, as the leader, unless the generation has changed from `seen`.

        Return whether a doorbell rang; append other descriptors that are ready to `others`. The
        rings are taken: the caller has to poll for them, whatever else ended the sleep.
        """
        cdef epoll_event events[MOST_EVENTS]
        cdef int n, number
        PyErr_CheckSignals()
        if self._generation != seen or self.epoll < 0:  # a handler may have closed the engine
            return False
        self._polling = True
        with nogil:
            n = epoll_wait(self.epoll, events, MOST_EVENTS, milliseconds)
            number = errno
        self._polling = False
        if self._nudged:
            self._take_nudge()
        if n < 0 and number != EINTR:
            failure = OSError(number, os.strerror(number))
            refuse_closed("wait", failure)
            raise failure
        # Now, while all is still where it was: once the caller has taken results, the handler of a
        # signal that came during the sleep, and raises, would lose them.
        PyErr_CheckSignals()
        return self.read_doorbells(events, n, others)

    # -- at the word of a bell --

    cdef uint32_t arm_at_word(self, c.shmnd_arming *arming) noexcept:
        """Arm the bell for the leader, which checks all else before it sleeps; return the word."""
        self.word, self.word_of = arming.marks, forks
        return c.shmnd_bell_arm_at_word(arming)

    cdef int sleep_at_word(self, uint64_t seen, uint32_t rings, uint64_t until) except -1:
        """Sleep `until` a time at the word that `arm_at_word` has set; return how that ended.

        Peers that ring for that queue end it, and all that wakes a leader within this process.
        """
        cdef c.shmnd_marks *marks
        cdef uint64_t now
        cdef int ended = WOKEN
        PyErr_CheckSignals()
        marks = self.word
        now = c.shmnd_now_ns()
        # The wait of a signal handler may have ended this thread's lead.
        if (marks == NULL or self._generation != seen or self.word_of != forks or now >= until
                or not self.leads_alone()):
            return WOKEN
        self._polling = True
        with nogil:
            if c.shmnd_futex_sleep(<const void *>&marks.rings, rings, until - now):
                ended = LASTED if c.shmnd_relaxed32(&marks.rings) == rings else MISLED
        self._polling = False
        self.word = NULL
        if self._nudged:
            self._take_nudge()
        PyErr_CheckSignals()  # before results are taken, as in `sleep_once`
        return ended

    cdef void end_at_word(self) noexcept:
        """Sleep at no word any more, if this thread is the leader."""
        if self._leader == PyThread_get_thread_ident():
            self.word = NULL

    cpdef void wake_from_word(self) noexcept:
        """Wake the leader if it sleeps at a word: something came that the word does not show."""
        cdef c.shmnd_marks *marks = self.word
        self.word = NULL
        if marks != NULL and self.word_of == forks:  # a child has no such thread, nor the memory
            c.shmnd_wake_at_word(marks)

    cpdef void ring_own(self) noexcept:
        """Wake the sleeping threads of this process to poll, as a peer would."""
        c.shmnd_ring_eventfd(self.own)
        self.wake_from_word()

    cdef wake_others(self):
        """Wake the other sleeping threads to poll: the leader's events may concern them."""
        self._generation += 1
        if self._followers:
            self._notify_followers()

    cpdef news(self):
        """Wake every sleeping thread after an event: each checks whether it waits for that."""
        self._generation += 1
        if self._followers or self._polling:
            self._notify_all()

    cpdef wake_at(self, double when):
        """Make the epoll readable at a moment of `time.monotonic()`.

        Only the earliest moment is kept, and all are polled then: those that wait for a later one
        ask for it again.
        """
        if when < <double>self._timer._due:
            self._timer.set(when)

    def _visit(self, visited: list, links: object) -> None:
        """Poll everything after a ring while one of these containers is not empty.

        The peers of what `links` contains ring the bell of its queue when there is something.
        """
        self._visited, self._links = visited, links

    cdef bint has_pending(self, object engine) except -1:
        """Return whether a ring may be for more than what the sleeping thread polls itself."""
        return self.has_links() or self.needs_attention(engine)

    cdef bint has_links(self) except -1:
        """Return whether a ring at the bell of a queue may be for more than its messages."""
        return len(self._links) != 0

    cdef bint needs_attention(self, object engine) except -1:
        """Return whether an event that no ring at the bell of a queue shows is waited for."""
        for each in self._visited:
            if each is not self._links and len(each):
                return True
        return not engine.client.alive

    def _wait_alone(self, engine, predicate, until: int):
        """Sleep and poll in turn until `predicate` returns something true, and return that, as the
        only thread that sleeps.

        False when the monotonic clock is at `until` nanoseconds (0: never); None when this thread
        cannot continue alone: another one sleeps, or a completion queue has requests in progress.
        """
        cdef Sleepers sleepers = engine.request_progress
        cdef object sleeper = object()
        if not sleepers.begin_if_alone(sleeper):
            return None
        try:
            if not self._become_leader():
                return None
            if self.has_pending(engine):
                engine.attend(None, False)
            return self.sleep_alone(engine, sleeper, predicate, until)
        finally:
            self.stop_leading()
            sleepers.end_for_now(sleeper)

    cdef object sleep_alone(self, object engine, object sleeper, object predicate, uint64_t end):
        cdef Sleepers sleepers = engine.request_progress
        cdef uint64_t seen
        cdef int milliseconds
        cdef bint rung
        cdef list others
        while True:
            seen = self._generation  # first: later changes of the engine must be noticed
            if not engine.alive:
                engine.check("wait")
            found = predicate()
            if found:
                return found
            milliseconds = milliseconds_until(end)
            if milliseconds == 0:
                return False
            # The wait of a signal handler may have ended this thread's lead.
            if not self._become_leader() or not sleepers.others_need_no_polls(sleeper):
                return None
            others = []
            rung = self.sleep_once(seen, milliseconds, others)
            if rung or others:
                self.wake_others()
                if others or self.has_pending(engine):
                    engine.attend(others, rung)

    cdef stop_leading(self):
        """End the lead of this thread, if it is the leader."""
        if self._leader == PyThread_get_thread_ident():
            self._leader = 0
            if self._followers:
                self._notify_followers()

    def _take_nudge(self) -> None:
        """Consume a nudge, which is complete when the condition's lock is free."""
        raise NotImplementedError

    def _notify_followers(self) -> None:
        """Wake the followers."""
        raise NotImplementedError

    def _notify_all(self) -> None:
        """Wake the followers and the leader."""
        raise NotImplementedError
