# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3


cdef class PickleFile:
    cdef char *base
    cdef Py_ssize_t used, room
    cdef bint in_arena
    cdef char[256] head  # the memory of a short pickle

    cdef int make_room(self, Py_ssize_t more) except -1
    cdef void put(self, const char *data, Py_ssize_t n) noexcept
    cdef void give_back(self) noexcept


cdef object dump_large(object obj, int protocol)
cdef PickleFile dump_bytes(bytes obj)


cdef class PickleParts:
    cdef bytes stream
    cdef list bodies

    cdef object load(self)


cdef PickleParts copy_parts(const void *pickle, Py_ssize_t n)
