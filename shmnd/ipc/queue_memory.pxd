# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int64_t, uint32_t, uint64_t

from shmnd.ipc.queue_c cimport (
    shmnd_block, shmnd_mpmc, shmnd_queue_head, shmnd_queue_member, shmnd_queue_shape, word64,
)


cdef struct Refs:
    uint32_t *items
    size_t first, count, room

cdef struct Run:
    uint32_t chunk
    uint32_t chunks
    bint building

cdef class QueueMemory:
    cdef readonly int fd
    cdef Refs more_fds  # a cycle that the collector clears would have emptied a list of them
    cdef object _slow
    cdef unsigned char *base
    cdef shmnd_queue_shape shape
    cdef shmnd_queue_head *head
    cdef shmnd_mpmc line
    cdef word64 *table
    cdef shmnd_queue_member *page
    cdef readonly int me
    cdef uint32_t born
    cdef Refs flight[6]
    cdef Refs spare[6]
    cdef Run *runs
    cdef size_t run_count, run_room
    cdef size_t slots_committed
    cdef uint64_t cursor, searched_at
    cdef uint32_t free_holds[896]
    cdef uint32_t free_hold_count
    cdef object __weakref__

    cdef int check(self) except -1
    cdef shmnd_queue_member *member(self, uint32_t number) noexcept
    cdef shmnd_block *block_at(self, uint32_t ref, size_t *room) noexcept
    cdef uint32_t allocate(self, size_t nbytes) except? 0xFFFFFFFF
    cdef void sent(self, uint32_t ref) noexcept
    cdef void unsent(self, uint32_t ref) noexcept
    cdef int prepare_slots(self) except -1
    cdef uint32_t _find_small(self, uint32_t kind) noexcept
    cdef uint32_t _find_run(self, uint64_t chunks) noexcept
    cdef int _add_run(self, uint64_t chunk, uint64_t chunks, bint building) except -1
    cdef int64_t _claim_free(self, uint64_t first, uint64_t last, uint64_t chunks, uint32_t kind)
    cdef void _give_up(self, uint64_t first, uint64_t chunks) noexcept
    cdef void _forget_lists(self) noexcept

    cdef uint64_t _slots_in_use(self) noexcept
    cdef uint64_t _position(self, uint64_t word, uint64_t index) noexcept
    cdef shmnd_block *_known(self, uint32_t ref) noexcept
