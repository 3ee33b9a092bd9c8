# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ipc.topic.topic_c cimport shmnd_reading


cdef class Origin:
    cdef shmnd_reading r
    cdef uint32_t born
    cdef readonly object publisher, form
    cdef object items  # the type of arrays of any shape, or None
    cdef uint64_t item_bytes
    cdef bint as_bytes  # the value of bytes that were sent is bytes


cdef class Held:
    cdef Origin origin
    cdef uint32_t hold
    cdef object memory
    cdef const unsigned char *base
    cdef uint64_t nbytes


cdef class Sample:
    cdef Origin origin  # None where a program made it
    cdef object owner  # keeps the payload: the pool, or from the first view on what holds the slot
    cdef uint64_t position, when_ns, info, payload
    cdef const unsigned char *base
    cdef uint64_t body[5]
    cdef uint32_t hold  # the slot, as long as this object holds it
    cdef bint is_open
    cdef object __weakref__

    cdef object in_place(self, object dtype, int ndim, uint64_t *dims)
    cdef object keeper(self)
    cdef object copied(self)
    cdef void let_go(self) noexcept
    cdef const unsigned char *start(self)
