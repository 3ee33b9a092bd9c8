# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint64_t

from shmnd.ring cimport c
from shmnd.ring.queues.sleeping cimport SleepingCore


cdef class CompletionCore(SleepingCore):
    cdef c.shmnd_poll_window poll_window  # how long the next wait polls

    cdef void count_wait(self, uint64_t ns, bint found) noexcept
    cdef uint64_t window_ns(self) noexcept
    cdef object _wait(self, str method, Py_ssize_t most, bint alone, object timeout)
    cdef object _spin(self, Py_ssize_t most, bint alone, object timeout, uint64_t *began)
    cdef object _check_briefly(self, Py_ssize_t most, bint alone)
    cdef bint _something(self) noexcept
    cdef _spin_unlocked(self, uint64_t end)
