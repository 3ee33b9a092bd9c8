# SPDX-License-Identifier: Apache-2.0

cdef class LentDescriptor:
    cdef readonly int fd
    cdef unsigned int _forks

cdef int own(int fd, size_t owner) except -1
cdef int given_up(int fd, size_t owner) noexcept
cdef LentDescriptor lend(int fd, size_t owner)
