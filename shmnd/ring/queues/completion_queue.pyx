# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Completion queues: taking results, and waiting for them.

Their memory is in `completion_ring`, polling in `polling`, Notify in `notifying`. Resize and the
overlapped operations are in `shmnd.completion_queue`.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport PyLong_AsLongAndOverflow
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.process.waiting cimport AT_WORD_NS, Sleepers, WaitSetCore, milliseconds_until
from shmnd.ring.queues.polling cimport PairCore

from shmnd.common.arguments import seconds, within

cdef object _USUAL = 64  # the default of `max`
cdef object _ONE = 1
# The first polls of a wait keep the interpreter's lock for this long.
cdef uint64_t _KEEP_LOCK_NS = 3000
# The number of pieces that a sleeper copies before it polls all else.
cdef int _PIECES = 16
# The number of waits that leave the word alone after a message has been found late there.
cdef uint32_t _AWAY_FROM_WORD = 1000
# Seconds that count as unlimited.
cdef double _LONG = 1e9


cdef inline Py_ssize_t _most(str call, object value) except -1:
    """Return the number of results that the caller wants."""
    if value is _ONE:  # the interpreter has one object for each small int
        return 1
    return 64 if value is _USUAL else _any_most(call, value)


cdef Py_ssize_t _any_most(str call, object value) except -1:
    cdef int beyond = 0
    cdef long most
    if type(value) is int:
        most = PyLong_AsLongAndOverflow(value, &beyond)
        if beyond == 0 and 0 <= most <= 0xFFFFFFFF:
            return most
    return min(within(call, 1, "max", value, 0), 0xFFFFFFFF)


cdef inline object _checked_timeout(object timeout):
    """Return a time-out; raise if it is not a number of seconds or None."""
    if timeout is None or (type(timeout) is float and timeout >= 0):
        return timeout
    if type(timeout) is int and 0 <= timeout <= 0xFFFFFFFF:
        return timeout
    return seconds("CompletionQueue.wait", 2, "timeout", timeout)


def others_are_idle(references, alone, bint announcing) -> bool:
    """Return whether no queue except `alone` has pending requests; have each announce the next one.

    `RequestProgress` calls it before a thread sleeps alone: `references` are all queues of its
    progress engine.
    """
    cdef CompletionCore queue
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


cdef bint _another_receives(dict queues, CompletionCore alone) except -1:
    """Return whether messages may arrive at another queue."""
    cdef CompletionCore queue
    cdef uint32_t i
    for reference in list(queues.values()):
        queue = reference()
        if queue is None or queue is alone:
            continue
        for i in range(queue.raw.link_count):
            if queue.raw.links[i].receive_cq == &queue.raw:
                return True
    return False


cdef int _add(CompletionCore queue, list results, list taken) except -1:
    """Append results. Where no memory is left for that, the next call returns them."""
    try:
        results.extend(taken)
    except BaseException:
        queue.give_back(taken)
        raise
    return 0


cdef class CompletionCore(PollingCore):
    """A completion queue as programs use it."""

    def get_results(self, max=64) -> list:
        """Take up to `max` completions, oldest first. Never waits."""
        return self.poll_results(_most("CompletionQueue.get_results", max))

    def wait(self, max=64, timeout=None) -> list:
        """Take completions; when there is none, wait for one.

        Polls for `spin` seconds, then sleeps in the kernel. Returns [] when `timeout` seconds end
        first. Ctrl-C interrupts it.
        """
        cdef Py_ssize_t most = _most("CompletionQueue.wait", max)
        cdef list results
        cdef uint64_t began
        timeout = _checked_timeout(timeout)
        if self.taking != forks:
            self._refuse_taking("wait")
        results = self.poll_results(most)
        if results or most == 0:
            return results
        if timeout is not None and timeout <= 0:
            return results
        began = c.shmnd_now_ns()
        if self.spin > 0:
            results = self._spin(most, timeout)
            if results:
                c.shmnd_window_hit(&self.poll_window)
                return results
        if timeout is not None:
            timeout -= (c.shmnd_now_ns() - began) * 1e-9
            if timeout <= 0:
                return results
        try:
            self._sleep(most, timeout, results)
        except BaseException:
            # The handler of a signal raised. The rings that this thread took may be others'.
            self.give_back(results)
            if self.born == forks:
                self.wake_sleepers()
            raise
        self.count_wait(c.shmnd_now_ns() - began, bool(results))
        if not results and self.taking != forks:
            self._refuse_taking("wait")
        return results

    def wait_one(self, timeout=None) -> Result:
        """Wait for one result and return it.

        TimeoutError when `timeout` seconds end first; it names the outstanding requests and their
        peers.
        """
        cdef list results = self.wait(1, timeout)
        if results:
            return results[0]
        outstanding = self._outstanding()
        raise TimeoutError(
            f"CompletionQueue.wait_one: no result within {timeout} s; "
            + ("; ".join(outstanding) or "no connected queue pair completes here")
        )

    # -- polling for a while --

    cdef list _spin(self, Py_ssize_t max, object timeout):
        """Poll for the spin window, without the interpreter's lock except at its beginning.

        Pieces of long copies are run meanwhile; the window begins again after each.
        """
        cdef uint64_t window = c.shmnd_window_next(&self.poll_window, self.window_ns(), 0)
        cdef uint64_t start = c.shmnd_now_ns()
        cdef uint64_t end, now, last = UINT64_MAX
        cdef int _
        cdef list results
        if timeout is not None and timeout < 1e9:
            last = start + <uint64_t>(<double>timeout * 1e9)
        end = min(start + window, last)
        while True:
            for _ in range(64):
                if self._something():
                    results = self.take_results(max)
                    if results:
                        return results
                    if self._copied:
                        end = min(c.shmnd_now_ns() + window, last)
                        break
                c.shmnd_pause()
            results = self.poll_results(max)
            now = c.shmnd_now_ns()
            if results or now >= end:
                return results
            if now - start > _KEEP_LOCK_NS:
                self._spin_unlocked(end)
                PyErr_CheckSignals()  # before results are taken, which its handler could lose

    cdef void count_wait(self, uint64_t ns, bint found) noexcept:
        """Count the length of a wait, for the next window."""
        c.shmnd_window_count(&self.poll_window, self.window_ns(), ns, found)

    cdef uint64_t window_ns(self) noexcept:
        """The nanoseconds of `spin`."""
        return <uint64_t>(min(self.spin, _LONG) * 1e9) if self.spin > 0 else 0

    cdef bint _something(self) noexcept:
        """Return whether a poll may find something; a cheap check, under the lock."""
        return self.given_back is not None or c.shmnd_cq_may_find(&self.raw)

    cdef _spin_unlocked(self, uint64_t end):
        """Poll the next slots of a few links with the lock released, for up to 20 µs.

        References keep their memory mapped meanwhile. The outcome is only a hint for a full poll.
        On a single CPU the peer may have the same one: it runs when this thread yields.
        """
        cdef const c.word64 *ready[4]
        cdef uint64_t expected[4]
        cdef uint32_t n = 0, i
        cdef uint64_t stop
        cdef list held = []
        cdef bint yields
        cdef c.shmnd_qp *qp
        if self.raw.unsettled or self.raw.link_count > 4:
            with nogil:
                c.shmnd_pause()
                if c.shmnd_on_one_cpu():
                    c.shmnd_yield()
            return
        for i in range(self.raw.link_count):
            qp = self.raw.links[i]
            held.append((<PairCore>qp.owner).link)
            ready[n] = &c.shmnd_reader_slot(&qp.in_, qp.in_.read_pos).ready_pos
            expected[n] = qp.in_.read_pos + 1
            n += 1
        with nogil:
            yields = c.shmnd_on_one_cpu()
            stop = c.shmnd_now_ns() + 20000
            if stop > end:
                stop = end
            while c.shmnd_now_ns() < stop:
                if yields:
                    c.shmnd_yield()
                for i in range(n):
                    if c.shmnd_relaxed64(ready[i]) == expected[i]:
                        stop = 0
                c.shmnd_pause()

    # -- sleeping --

    def _sleep(self, Py_ssize_t max, timeout, list results not None):
        """Sleep in the kernel until there is a completion; append the results."""
        cdef uint64_t until = 0
        if timeout is not None:
            until = c.shmnd_now_ns() + <uint64_t>(min(<double>timeout, _LONG) * 1e9)
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
            self.sleepers -= 1
            self._counter_table.count_sleeper(-1)
            wait_set.stop_leading()
            self._rearm()
            others.end_for_now(self)

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
            at_word = c.shmnd_now_ns() < word_end and self._needs_rings_alone(sleeping)
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
            if (wait_set.is_led_elsewhere() or c.shmnd_cq_has_unfinished_copy(&self.raw)
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
                return True  # the handler of a signal has forked: this is the child
            wait_set.wake_others()
            if self.notify_mode or self.readiness is not None:
                _add(self, results, self.poll_results(max))
            else:
                self.polls += 1
                _add(self, results, self.take_results(max))
            if others or wait_set.has_pending(engine):
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
        if (self._needs_rings_alone(sleeping)
                and self._wait_set_core.sleep_at_word(seen, rings, until)
                and self.born == forks):
            self.collect()
            if self.count():
                self.away_from_word = _AWAY_FROM_WORD  # a peer may keep the rings from it
        self.pace.left = 0  # the next call notices what the word does not show
        return 0

    cdef bint _needs_rings_alone(self, Sleepers sleeping) except -1:
        """Return whether the rings of this queue are all that the sleeping thread waits for.

        A queue has one arming, so rings at the word reach no other thread, Notify or descriptor;
        and where another queue receives, its senders may ask for a poll by a doorbell.
        """
        cdef WaitSetCore wait_set = self._wait_set_core
        return (self.sleepers == 1 and self.notify_mode == 0 and self.readiness is None
                and self.raw.unsettled == 0 and c.shmnd_cq_next_poll_ns(&self.raw, 1) == 0
                and len(sleeping._sleepers) == 1 and wait_set.leads_alone()
                and not wait_set.has_pending(self.engine)
                and not _another_receives(sleeping._queues, self))

    cdef bint _over(self) except -1:
        """Before a sleep: return whether it must not begin, and set the time of the next poll."""
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
