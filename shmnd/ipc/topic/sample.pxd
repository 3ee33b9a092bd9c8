# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint64_t


cdef class Sample:
    cdef object owner
    cdef object source  # keeps the page of an array that a copy of it describes
    cdef readonly object publisher
    cdef object form
    cdef object items  # of the source: the type of an array of any shape, or None
    cdef uint64_t item_bytes
    cdef bint as_bytes  # of the source: the value of bytes that were sent is bytes
    cdef uint64_t position, when_ns, info, payload
    cdef const unsigned char *base
    cdef uint64_t body[5]
    cdef bint released
    cdef object __weakref__

    cdef object in_place(self, object dtype, int ndim, uint64_t *dims)
    cdef const unsigned char *start(self)
