# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring.c_waiting cimport shmnd_poll_window


cdef class ReaderCore:
    cdef list sources
    cdef list kept  # samples that were taken for calls which were interrupted; mostly None
    cdef Py_ssize_t turn
    cdef uint32_t born, misses
    cdef uint64_t checked_ns
    cdef shmnd_poll_window poll_window
    cdef public double spin
    cdef public str topic
    cdef readonly bint closed
    cdef public bint _trouble  # `ready` has found an error, which the next call raises
    cdef object __weakref__

    cdef object take(self)
    cdef object first_polls(self)
    cdef uint64_t _spin_ns(self) noexcept
    cdef object spin_for(self, uint64_t end)
    cdef int enter(self, str call) except -1
