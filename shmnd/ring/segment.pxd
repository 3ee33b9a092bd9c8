# SPDX-License-Identifier: Apache-2.0

cdef class Segment:
    cdef readonly int fd
    cdef readonly size_t size
    cdef readonly bint writable
    cdef unsigned char *base
    cdef int _readonly

    cdef _map(self, size_t nbytes, bint writable)
