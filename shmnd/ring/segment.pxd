# SPDX-License-Identifier: Apache-2.0

cdef class Segment:
    cdef readonly int fd
    cdef readonly size_t size
    cdef readonly bint writable
    cdef unsigned char *base
    cdef size_t counted

    cdef _map(self, size_t nbytes, bint writable)
    cdef void _unmap(self) noexcept
