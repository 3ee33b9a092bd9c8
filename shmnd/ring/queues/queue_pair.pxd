# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring.queues.connection cimport ConnectionCore
from shmnd.ring.shared_memory.segment cimport Segment


cdef class QueuePair(ConnectionCore):
    cdef uint64_t reserved_receive, reserved_initiator
    cdef bint joined
    cdef bint given_back
    cdef tuple place  # segment and offset of its counters

    cdef Segment mapped(self, uint64_t address, uint32_t token, uint64_t nbytes, uint64_t *offset)
    cdef _give_back(self)
    cdef _make_sending(self, uint32_t depth, uint32_t sge)
    cdef _make_receiving(self, uint32_t depth, uint32_t sge)
