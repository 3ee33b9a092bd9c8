# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring.process.counters cimport CounterTable
from shmnd.ring.process.peer cimport Link, PeerAdapter
from shmnd.ring.queues.posting cimport PostingCore


cdef class ConnectionCore(PostingCore):
    cdef uint32_t extents  # for each receive that is advertised
    cdef CounterTable counter_table
    cdef tuple ends  # addresses, here and there
    cdef object release_callback

    cdef bint moved_from(self, int state) noexcept

    cdef _take_description(self, PeerAdapter peer, tuple remote)
    cdef _locate_parts(self, Link link)
    cdef _reset_positions(self)
    cdef _reset_counters(self, uint64_t role, tuple ends)
    cdef _leave(self)
