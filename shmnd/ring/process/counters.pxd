# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint64_t
from posix.types cimport pid_t

from shmnd.ring cimport c
from shmnd.ring.shared_memory.segment cimport Segment


cdef put_address(c.word64 *words, tuple address)


cdef class CounterTable:
    cdef object _announce
    cdef str _uid
    cdef dict _pages             # number -> Segment
    cdef uint64_t _numbers       # none is used again
    cdef list _free
    cdef uint64_t _names
    cdef uint64_t _place
    cdef pid_t _owner
    cdef c.shmnd_counters_head *_head

    cdef Segment _grow(self, str call)
    cdef _offer(self, Segment page)
    cdef tuple take(self)
    cdef void give_back(self, tuple place, c.shmnd_counters *counters) noexcept
    cdef name(self, c.shmnd_counters *counters)
    cdef bint _counts(self) noexcept
    cdef void count_region(self, int n, uint64_t nbytes) noexcept
    cdef void count_sleeper(self, int n) noexcept
    cdef void count_notify(self, int n) noexcept


cdef class CountersView:
    cdef readonly Segment segment
    cdef c.shmnd_counters_head *_head
    cdef readonly Py_ssize_t entries
