# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3


cdef struct Plain:
    char *addr
    Py_ssize_t nbytes
    Py_buffer view      # of what `addr` belongs to, if `held`
    bint held


cdef bint plain(object msg, bint readonly, Plain *into) except -1
cdef void release(Plain *given) noexcept
cdef bint plain_array(
    object obj, bint readonly, char **addr, Py_ssize_t *nbytes, int *number) except -1
cdef object array_type(int number)
