# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.stat cimport struct_stat

from shmnd.ipc.common.gate_c cimport word64
from shmnd.ipc.queue.queue_c cimport (
    shmnd_mpmc, shmnd_queue_head, shmnd_queue_member, shmnd_queue_shape,
)
from shmnd.ipc.common.refs cimport Refs


cdef class QueueMembers:
    cdef readonly int fd
    cdef struct_stat file  # what it is: a number may be another file's in a child
    cdef Refs more_fds  # a cycle that the collector clears would have emptied a list of them
    cdef object _slow
    cdef uint32_t slow_born
    cdef unsigned char *base
    cdef shmnd_queue_shape shape
    cdef shmnd_queue_head *head
    cdef shmnd_mpmc line
    cdef word64 *table
    cdef shmnd_queue_member *page
    cdef readonly int me
    cdef uint32_t born
    cdef size_t slots_committed
    cdef uint32_t free_holds[896]
    cdef uint32_t free_hold_count
    cdef object __weakref__

    cdef list kept  # items that were taken for callers that were interrupted; mostly None
    cdef uint32_t kept_born
    cdef int check(self) except -1
    cdef int keep_again(self, tuple item) except -1
    cdef size_t has_kept(self)
    cdef object slow(self)
    cdef void _close_own(self, int fd) noexcept
    cdef shmnd_queue_member *member(self, uint32_t number) noexcept
    cdef void forget_lists(self) noexcept
    cdef int64_t _unreported(self, uint64_t *lost) noexcept
    cdef uint64_t slots_in_use(self) noexcept
    cdef uint64_t _position(self, uint64_t word, uint64_t index) noexcept
