# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Completion queues: taking results, and waiting for them.

Their memory is in `completion_ring`, polling in `polling`, the sleep of a wait in `sleeping`,
Notify in `notifying`. Resize and the overlapped operations are in `shmnd.completion_queue`.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport PyLong_AsLongAndOverflow
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.queues.polling cimport PairCore
from shmnd.ring.queues.sleeping cimport UNLIMITED, SleepingCore

from shmnd.common.arguments import seconds, within

cdef object _USUAL = 64  # the default of `max`
cdef object _ONE = 1
cdef str _WAIT = "CompletionQueue.wait"
cdef str _WAIT_ONE = "CompletionQueue.wait_one"
# The first polls of a wait keep the interpreter's lock for this long, and a few more before them.
cdef uint64_t _KEEP_LOCK_NS = 3000


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


cdef inline object _checked_timeout(str call, int parameter, object timeout):
    """Return a time-out; raise if it is not a number of seconds or None."""
    if timeout is None or (type(timeout) is float and timeout >= 0):
        return timeout
    if type(timeout) is int and 0 <= timeout <= 0xFFFFFFFF:
        return timeout
    return seconds(call, parameter, "timeout", timeout)


cdef class CompletionCore(SleepingCore):
    """A completion queue as programs use it."""

    @property
    def spin(self) -> float:
        """The seconds for which a wait polls before it sleeps."""
        return self.spin_seconds

    @spin.setter
    def spin(self, value) -> None:
        self.spin_seconds = seconds("CompletionQueue.spin", 0, "spin", value)

    def get_results(self, max=64) -> list:
        """Take up to `max` completions, oldest first. Never waits."""
        return self.poll_results(_most("CompletionQueue.get_results", max))

    def wait(self, max=64, timeout=None) -> list:
        """Take completions; when there is none, wait for one.

        Polls for `spin` seconds, then sleeps in the kernel. Returns [] when `timeout` seconds end
        first. Ctrl-C interrupts it.
        """
        cdef Py_ssize_t most = _most(_WAIT, max)
        found = self._wait("wait", most, False, _checked_timeout(_WAIT, 2, timeout))
        return [] if found is None else found

    cdef object _wait(self, str method, Py_ssize_t most, bint alone, object timeout):
        """Return results, or the only one without a list; None when the time-out ends first."""
        cdef list results
        cdef uint64_t began = 0
        if self.taking != forks:
            self._refuse_taking(method)
        found = self.poll_for(most, alone)
        if found is not None or most == 0:
            return found
        if timeout is not None and timeout <= 0:
            return None
        if self.spin_seconds > 0:
            found = self._spin(most, alone, timeout, &began)
            if found is not None:
                c.shmnd_window_hit(&self.poll_window)
                return found
        else:
            began = c.shmnd_now_ns()
        if timeout is not None:
            timeout -= (c.shmnd_now_ns() - began) * 1e-9
            if timeout <= 0:
                return None
        results = []
        try:
            self._sleep(most, timeout, results)
            # Last: a handler that raises behind this call would lose the results.
            PyErr_CheckSignals()
        except BaseException:
            # The handler of a signal raised. The rings that this thread took may be others'.
            self.give_back(results)
            if self.born == forks:
                self.wake_sleepers()
            raise
        self.count_wait(c.shmnd_now_ns() - began, bool(results))
        if self.born != forks:
            results.clear()  # the parent's: the handler of a signal has forked
        if results:
            return results[0] if alone else results
        if self.taking != forks:
            self._refuse_taking(method)
        return None

    def wait_one(self, timeout=None) -> Result:
        """Wait for one result and return it.

        TimeoutError when `timeout` seconds end first; it names the outstanding requests and their
        peers.
        """
        cdef object checked = _checked_timeout(_WAIT_ONE, 1, timeout)
        result = self._wait("wait_one", 1, True, checked)
        if result is not None:
            return result
        outstanding = self._outstanding()
        raise TimeoutError(
            f"{_WAIT_ONE}: no result within {timeout} s; "
            + ("; ".join(outstanding) or "no connected queue pair completes here")
        )

    # -- polling for a while --

    cdef object _spin(self, Py_ssize_t most, bint alone, object timeout, uint64_t *began):
        """Poll for the spin window, mostly without the interpreter's lock; return results, or None.

        Pieces of long copies are run meanwhile; the window begins again after each.
        """
        cdef uint64_t window, start, end, now, last = UINT64_MAX
        found = self._check_briefly(most, alone)
        if found is not None:
            return found
        began[0] = start = c.shmnd_now_ns()
        window = c.shmnd_window_next(&self.poll_window, self.window_ns(), 0)
        if timeout is not None and timeout < UNLIMITED:
            last = start + <uint64_t>(<double>timeout * 1e9)
        end = min(start + window, last)
        while True:
            if self._copied:
                end = min(c.shmnd_now_ns() + window, last)
            found = self.poll_for(most, alone)
            now = c.shmnd_now_ns()
            if found is not None or now >= end:
                return found
            if now - start > _KEEP_LOCK_NS:
                self._spin_unlocked(end)
                PyErr_CheckSignals()  # before results are taken, which its handler could lose
            found = self._check_briefly(most, alone)
            if found is not None:
                return found

    cdef object _check_briefly(self, Py_ssize_t most, bint alone):
        """Check a few times whether a poll may find something, and poll then; return that, or None.

        It reads no clock: each reading takes as long as several checks.
        """
        cdef int _
        self._copied = 0
        for _ in range(64):
            if self._something():
                found = self.take(most, alone)
                if found is not None or self._copied:
                    return found
            c.shmnd_pause()
        return None

    cdef void count_wait(self, uint64_t ns, bint found) noexcept:
        """Count the length of a wait, for the next window."""
        c.shmnd_window_count(&self.poll_window, self.window_ns(), ns, found)

    cdef uint64_t window_ns(self) noexcept:
        """Return the nanoseconds of `spin`."""
        return <uint64_t>(min(self.spin_seconds, <double>UNLIMITED) * 1e9)

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
