# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.topic.topic_c cimport shmnd_found, shmnd_outcome, shmnd_reading


cdef struct Pool:
    uint64_t number
    const unsigned char *base
    uint64_t nbytes


cdef class Source:
    cdef shmnd_reading r
    cdef object head_memory, lines_memory, sleepers_memory, page_memory, kept_memory
    cdef dict pools
    cdef list old_memories
    cdef Pool recent[8]
    cdef uint32_t born, seats
    cdef uint64_t first
    cdef readonly object publisher, form
    cdef public object neighbour, owner
    cdef readonly object ident
    cdef public bint gone
    cdef bint closed
    cdef object __weakref__

    cdef void give_up(self)
    cdef object next(self)
    cdef shmnd_outcome find(self, shmnd_found *found) except *
    cdef object sample(self, shmnd_found *found, bint copied)
    cdef Pool *pool(self, uint64_t number) except NULL


cdef class Held:
    cdef Source source
    cdef uint32_t hold
    cdef object memory
    cdef const unsigned char *base
    cdef uint64_t nbytes
