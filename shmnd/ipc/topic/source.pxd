# SPDX-License-Identifier: Apache-2.0

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.topic.sample cimport Origin
from shmnd.ipc.topic.topic_c cimport shmnd_found, shmnd_near, shmnd_outcome


cdef class Source(Origin):
    cdef object head_memory, lines_memory, sleepers_memory, page_memory, kept_memory
    cdef dict pools
    # A sample whose memory could not be mapped for want of resources, or whose receive was
    # interrupted: the next one returns it.
    cdef shmnd_found left
    cdef bint has_left, left_copied
    cdef PyObject *near_memory[8]  # of the pools that are near; `pools` keeps it
    cdef list old_memories
    cdef uint32_t seats
    cdef uint64_t first
    cdef public object neighbour, owner
    cdef readonly object ident
    cdef bint settled  # it has its seat, and the queue that the publisher keeps for it
    cdef object shortage  # why that queue could not be mapped yet
    cdef object away  # what the next broker does not know of its process yet
    cdef public bint gone
    cdef bint closed
    cdef object __weakref__

    cdef int require_lines(self) except -1
    cdef void end(self) noexcept
    cdef void give_up(self)
    cdef object next(self)
    cdef bint rests(self) except -1
    cdef bint is_away(self, exc, number) except -1
    cdef void leave(self, const shmnd_found *found, bint copied) noexcept
    cdef shmnd_outcome find(self, shmnd_found *found) except *
    cdef shmnd_outcome finish(self, shmnd_outcome outcome, shmnd_found *found) except *
    cdef object sample(self, shmnd_found *found, bint copied)
    cdef shmnd_near *pool(self, uint64_t number) except NULL
