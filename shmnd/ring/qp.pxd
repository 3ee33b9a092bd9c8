# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring.posting cimport PostingCore
from shmnd.ring.tally cimport Tallies


cdef class QueuePair(PostingCore):
    cdef uint32_t extents
    cdef uint64_t reserved_receive, reserved_initiator
    cdef bint released
    cdef bint joined
    cdef object release_callback
    cdef Tallies tallies
    cdef tuple place  # of its tally

    cdef _tally(self, uint64_t role, tuple ends)
    cdef _leave(self)
