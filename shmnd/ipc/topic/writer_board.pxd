# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.topic.topic_c cimport shmnd_board, shmnd_guest


cdef class WriterBoard:
    cdef shmnd_board b
    cdef object head_memory, lines_memory, sleepers_memory
    cdef list memories
    cdef dict neighbours, pools
    cdef object near_pool  # of the last loan
    cdef uint32_t near_group
    cdef uint32_t born, seats, live_slots
    cdef readonly bint closed
    cdef object __weakref__

    cdef int require_board(self) except -1
    cdef shmnd_guest *guest_at(self, uint64_t seat) except NULL
    cdef uint32_t room_for(self, uint32_t each) except? 0xFFFFFFFE
    cdef int wake(self, uint32_t first, uint64_t bits) except -1
    cdef int wake_each(self) except -1
    cdef bint wake_one(self, uint32_t seat) except -1
    cdef void wake_at_counter(self) noexcept
    cdef int ring(self, uint32_t seat) except -1
