# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring.queues.posting cimport PostingCore
from shmnd.ring.shared_memory.segment cimport Segment
from shmnd.ring.process.counters cimport CounterTable


cdef class QueuePair(PostingCore):
    cdef uint32_t extents
    cdef uint64_t reserved_receive, reserved_initiator
    cdef bint released
    cdef bint joined
    cdef bint given_back
    cdef object release_callback
    cdef CounterTable counter_table
    cdef tuple place  # of its counters
    cdef tuple ends  # addresses, here and there

    cdef Segment mapped(self, uint64_t address, uint32_t token, uint64_t nbytes, uint64_t *offset)
    cdef _counters(self, uint64_t role, tuple ends)
    cdef _leave(self)
    cdef _give_back(self)
    cdef _make_sending(self, uint32_t depth, uint32_t sge)
    cdef _make_receiving(self, uint32_t depth, uint32_t sge)
