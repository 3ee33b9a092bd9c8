# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.shared_memory.segment cimport Segment


cdef class PeerAdapter:
    cdef c.shmnd_peer raw
    cdef readonly str uid
    cdef readonly int pid
    cdef readonly bint same_user
    cdef dict _segments
    cdef list _retired
    cdef int jobs
    cdef object __weakref__

    cdef Segment data_segment(self, uint32_t seg)
    cdef c.shmnd_bell *bell(self, object place) except NULL
    cdef c.shmnd_marks *marks(self, object place) except NULL
    cdef unsigned char *_place_of(self, object place, uint32_t first, size_t size) except NULL
    cdef _add_table(self, uint64_t table, c.shmnd_mapping mapping)
    cdef _add_data(self, uint32_t seg, c.shmnd_mapping mapping)


cdef class Link:
    cdef Segment segment
    cdef c.shmnd_link_map_t map
    cdef c.shmnd_link_shape shape
    cdef int me
    cdef uint64_t connection

    cdef _size(self, tuple local, tuple remote, bint active)
    cdef bint fits(self, tuple ours, tuple theirs) except -1
    cdef bint _has(self, int side, tuple end) except -1


# The places of the numbers by which a queue pair describes itself to the other end.
cdef enum Part:
    RECEIVES
    EXTENTS
    REQUESTS
    ELEMENTS
    SHARED
    RECEIVE_BIT
    INITIATOR_BIT
    RECEIVE_BELL  # two numbers
    INITIATOR_BELL = 9
    PARTS = 11
