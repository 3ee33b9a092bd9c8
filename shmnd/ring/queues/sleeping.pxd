# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring.process.waiting cimport Sleepers
from shmnd.ring.queues.polling cimport PollingCore


cdef enum:
    UNLIMITED = 1000000000  # seconds that count as no limit


cdef class SleepingCore(PollingCore):
    cdef uint32_t away_from_word  # so many waits do not sleep at the word

    cdef bint _sleep_alone(self, Py_ssize_t max, uint64_t until, list results) except -1
    cdef bint _nap_until(
        self, Py_ssize_t max, uint64_t until, list results, Sleepers sleeping
    ) except -1
    cdef uint64_t _end_at_word(self, uint64_t until) noexcept
    cdef int _sleep_at_word(
        self, uint64_t seen, uint32_t rings, uint64_t until, Sleepers sleeping
    ) except -1
    cdef bint _needs_rings_alone(self, Sleepers sleeping) except -1
    cdef bint _over(self) except -1
    cdef doze(self)
