# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Completion queues: the sleep of a thread that waits, in the kernel, until there is a completion.

It sleeps at the word of its bell first, where a ring takes fewer system calls, and then with all
other threads of the process on the epoll (`shmnd.runtime.waiting`).
"""

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.process.waiting cimport (
    AT_WORD_NS,
    LASTED,
    MISLED,
    Sleepers,
    WaitSetCore,
    milliseconds_until,
)
from shmnd.ring.queues.polling cimport PollingCore

# The number of pieces that a sleeper copies before it polls all else.
cdef int _PIECES = 16
# The number of waits that leave the word alone after a ring was kept from a sleeper there.
cdef uint32_t _AWAY_FROM_WORD = 1000


def others_are_idle(references, alone, bint announcing) -> bool:
    """Return whether no queue except `alone` has pending requests; have each announce the next one.

    `RequestProgress` calls it before a thread sleeps alone: `references` are all queues of its
    progress engine.
    """
    cdef SleepingCore queue
    for reference in references:
        found = reference()
        if found is None or found is alone:
            continue
        queue = found
        if queue.raw.unsettled and announcing:
            return False
        queue.announce(announcing and queue.sleepers == 0 and queue.notify_mode == 0)
        if announcing and queue.asked():
            return False
    return True


cdef bint _another_receives(dict queues, SleepingCore alone) except -1:
    """Return whether messages may arrive at another queue."""
    cdef SleepingCore queue
    for reference in list(queues.values()):
        queue = reference()
        if queue is not None and queue is not alone and queue.raw.receiving_count:
            return True
    return False


cdef int _add(SleepingCore queue, list results, list taken) except -1:
    """Append results. Where no memory is left for that, the next call returns them."""
    try:
        results.extend(taken)
    except BaseException:
        queue.give_back(taken)
        raise
    return 0


cdef class SleepingCore(PollingCore):
    """A completion queue's sleeping threads."""

    def _sleep(self, Py_ssize_t max, timeout, list results not None):
        """Sleep in the kernel until there is a completion; append the results."""
        cdef uint64_t until = 0
        if timeout is not None:
            until = c.shmnd_now_ns() + <uint64_t>(min(<double>timeout, <double>UNLIMITED) * 1e9)
        if self._sleep_alone(max, until, results):
            return
        if until:
            timeout = (<double>until - <double>c.shmnd_now_ns()) * 1e-9

        def found():
            self._rearm()
            for _ in range(_PIECES):
                _add(self, results, self.poll_results(max))
                if results or not c.shmnd_cq_has_unfinished_copy(&self.raw):
                    break
            if not results:
                self.collect()  # a hostile peer may have cleared marks
                _add(self, results, self.poll_results(max))
            return bool(results) or self._over()

        self._asleep(found, timeout)

    cdef bint _sleep_alone(self, Py_ssize_t max, uint64_t until, list results) except -1:
        """Sleep as `_asleep` does, without its Python calls: the common case of a waiter.

        False if that is not possible: another thread sleeps too, or requests of other queues are
        pending.
        """
        cdef WaitSetCore wait_set = self._wait_set_core
        cdef Sleepers others
        if wait_set is None:
            return False
        others = self.engine.request_progress
        if others is None or not others.begin_if_alone(self):
            return False
        if not wait_set._become_leader():
            others.end(self)
            return False
        self.sleepers += 1
        self._counter_table.count_sleeper(1)
        try:
            return self._nap_until(max, until, results, others)
        finally:
            wait_set.end_at_word()
            self.sleepers -= 1
            self._counter_table.count_sleeper(-1)
            self._rearm()
            try:
                wait_set.stop_leading()
            finally:
                others.end_for_now(self)  # also where the handler of a signal raises

    cdef bint _nap_until(
        self, Py_ssize_t max, uint64_t until, list results, Sleepers sleeping
    ) except -1:
        """Sleep and poll in turn; False when this thread cannot continue to do so alone.

        It sleeps at the word of its bell first, where a ring takes fewer system calls. Nothing else
        from outside this process wakes it there: so that is short, and for waiters of which nothing
        else is expected.
        """
        cdef WaitSetCore wait_set = self._wait_set_core
        cdef object engine = self.engine
        cdef uint64_t seen, word_end = self._end_at_word(until)
        cdef uint32_t rings = 0
        cdef int milliseconds
        cdef bint rung, at_word
        cdef list others
        while True:
            seen = wait_set._generation  # first: later changes of the engine must be noticed
            if not engine.alive:
                engine.check("wait")
            # The wait of a signal handler may have ended this thread's lead.
            if not wait_set._become_leader():
                return False
            at_word = c.shmnd_now_ns() < word_end and self._needs_rings_alone(sleeping)
            if self.born != forks:
                return True  # the handler of a signal has forked: this is the child
            if at_word:
                rings = wait_set.arm_at_word(&self.raw.arming)
            else:
                self._rearm()
            self.collect()  # a hostile peer may have cleared marks
            if self.count():
                _add(self, results, self.poll_results(max))
            if results or self._over():
                return True
            milliseconds = milliseconds_until(until)
            if milliseconds == 0:
                return True
            if (c.shmnd_cq_has_unfinished_copy(&self.raw)
                    or not sleeping.others_need_no_polls(self)):
                return False
            others = []
            if at_word:
                self._sleep_at_word(seen, rings, word_end, sleeping)
                rung = True
            else:
                rung = wait_set.sleep_once(seen, milliseconds, others)
            if not rung and not others:
                continue
            if self.born != forks:
                return True
            wait_set.wake_others()
            if self.notify_mode or self.readiness is not None:
                _add(self, results, self.poll_results(max))
            else:
                self.polls += 1
                _add(self, results, self.take_results(max))
            if others or (wait_set.has_links() if at_word else wait_set.has_pending(engine)):
                engine.attend(others, rung)
            if results:
                return True

    cdef uint64_t _end_at_word(self, uint64_t until) noexcept:
        """Return until when a wait may sleep at the word of its bell; 0 for not at all."""
        cdef uint64_t end
        if self.away_from_word:
            self.away_from_word -= 1
            return 0
        end = c.shmnd_now_ns() + AT_WORD_NS
        return min(end, until) if until else end

    cdef int _sleep_at_word(
        self, uint64_t seen, uint32_t rings, uint64_t until, Sleepers sleeping
    ) except -1:
        """Sleep at the word of the bell, for which it is armed, if it may still be there."""
        cdef int ended
        if not self._needs_rings_alone(sleeping) or self.born != forks:
            return 0
        ended = self._wait_set_core.sleep_at_word(seen, rings, until)
        self.pace.left = 0  # the next call notices what the word does not show
        if ended == LASTED and self.born == forks:
            self.collect()
            # A ring comes soon after its message: where it is not there, a peer set the word back.
            if self.count() and c.shmnd_relaxed32(&self.raw.arming.marks.rings) == rings:
                ended = MISLED
        if ended == MISLED:
            self.away_from_word = _AWAY_FROM_WORD
        return 0

    cdef bint _needs_rings_alone(self, Sleepers sleeping) except -1:
        """Return whether the rings of this queue are all that the sleeping thread waits for.

        A queue has one arming, so rings at the word reach no other thread, Notify or descriptor;
        and where another queue receives, its senders may ask for a poll by a doorbell. What runs
        code of Python comes first: other threads may change all else meanwhile.
        """
        cdef WaitSetCore wait_set = self._wait_set_core
        return (not wait_set.needs_attention(self.engine)
                and not _another_receives(sleeping._queues, self)
                and self.sleepers == 1 and self.notify_mode == 0 and self.readiness is None
                and self.raw.unsettled == 0 and c.shmnd_cq_next_poll_ns(&self.raw, 1) == 0
                and len(sleeping._sleepers) == 1 and wait_set.leads_alone())

    cdef bint _over(self) except -1:
        """Return whether a sleep must not begin; otherwise set the time of the next poll."""
        due = self._due
        if due is not None and not self.closed:
            self.engine.wake_at(due)
        return self.closed

    cdef doze(self):
        """Sleep in the kernel until there is a completion, without taking it."""

        def found():
            self._rearm()
            self.collect()
            return self.count() > 0 or self._over()

        self._asleep(found, None)

    def _asleep(self, found, timeout):
        self.usable("wait")
        self.sleepers += 1
        self._counter_table.count_sleeper(1)
        try:
            self.engine.wait(found, timeout)
        finally:
            self.sleepers -= 1
            self._counter_table.count_sleeper(-1)
            self._rearm()
            self.engine.request_progress.poller_left(self)
