# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int64_t, uint32_t, uint64_t

from shmnd.ipc.queue.queue_c cimport shmnd_block
from shmnd.ipc.queue.queue_members cimport QueueMembers
from shmnd.ipc.common.refs cimport Refs


cdef struct Run:
    uint32_t chunk
    uint32_t chunks
    bint building

cdef class QueueMemory(QueueMembers):
    cdef Refs flight[6]
    cdef Refs spare[6]
    cdef Run *runs
    cdef size_t run_count, run_room
    cdef uint64_t cursor, searched_at

    cdef shmnd_block *block_at(self, uint32_t ref, size_t *room) noexcept
    cdef uint64_t allocate(self, size_t nbytes) except? 0xFFFFFFFFFFFFFFFF
    cdef void sent(self, uint64_t packed) noexcept
    cdef void unsent(self, uint64_t packed) noexcept
    cdef int prepare_slots(self) except -1
    cdef uint32_t _find_small(self, uint32_t kind) noexcept
    cdef uint32_t _find_run(self, uint64_t chunks) noexcept
    cdef int _add_run(self, uint64_t chunk, uint64_t chunks, bint building) except -1
    cdef int64_t _claim_free(self, uint64_t first, uint64_t last, uint64_t chunks, uint32_t kind)
    cdef void _give_up(self, uint64_t first, uint64_t chunks) noexcept
    cdef shmnd_block *_place(self, uint32_t ref, uint32_t kind) noexcept
    cdef bint _run_is_free(self, size_t at) noexcept
