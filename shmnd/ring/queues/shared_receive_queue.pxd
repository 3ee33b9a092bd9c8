# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.shared_memory.registry cimport Registry


cdef class ReceiveCore:
    cdef c.shmnd_receives raw
    cdef c.shmnd_qp limits
    cdef Registry registry
    cdef object adapter
    cdef list members
    cdef bint closed
    cdef bint awaited  # a Notify waits until receives are consumed
    cdef uint32_t born

    cdef _arrived(self)
    cdef drop(self)
    cdef _room(self, uint32_t depth)
    cdef int usable(self, str call) except -1


cdef str receive_reason(uint32_t status, object sge, const c.shmnd_receives *queue, uint64_t most,
                        str ask_sge, str ask_depth)
