# SPDX-License-Identifier: Apache-2.0

cdef struct FragileRange:
    size_t base
    size_t size
    FragileRange *next


cdef bint lies_in_fragile(size_t address, size_t nbytes) noexcept
cdef extern from "wire/map_sparse.h" nogil:
    void *shmnd_map_sparse(size_t nbytes, int protection, int fd)

cdef class Segment:
    cdef readonly int fd
    cdef readonly size_t size
    cdef readonly bint writable
    cdef readonly bint sealed
    cdef bint sparse
    cdef unsigned char *base
    cdef size_t counted
    cdef FragileRange *_fragile
    cdef object __weakref__

    cdef _map(self, size_t nbytes, bint writable)
    cdef void _unmap(self) noexcept
    cdef _enter_fragile(self)
    cdef void _leave_fragile(self) noexcept
