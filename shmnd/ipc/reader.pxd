# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.topic_c cimport shmnd_found, shmnd_look, shmnd_reading


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
    cdef shmnd_look find(self, shmnd_found *found) except *
    cdef object sample(self, shmnd_found *found, bint copied)
    cdef Pool *pool(self, uint64_t number) except NULL


cdef class Held:
    cdef Source source
    cdef uint32_t hold
    cdef object memory
    cdef const unsigned char *base
    cdef uint64_t nbytes


cdef class Sample:
    cdef object owner
    cdef Source source
    cdef readonly object publisher
    cdef object form
    cdef uint64_t position, when_ns, info, payload
    cdef const unsigned char *base
    cdef uint64_t body[5]
    cdef bint released
    cdef object __weakref__

    cdef object in_place(self, object dtype, int ndim, uint64_t *dims)
    cdef const unsigned char *start(self)


cdef class ReaderCore:
    cdef list sources
    cdef Py_ssize_t turn
    cdef uint32_t born, misses, spins_missed
    cdef uint64_t looked_ns
    cdef public double spin
    cdef public str topic
    cdef readonly bint closed
    cdef object __weakref__

    cdef object take(self)
    cdef object spin_for(self, uint64_t end)
    cdef int enter(self, str call) except -1
