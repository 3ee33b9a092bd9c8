# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3


from cpython.object cimport PyObject

cdef struct Plain:
    char *addr
    Py_ssize_t nbytes
    PyObject *owner     # a reference to what `addr` belongs to
    bint held           # a bytearray, which keeps its size until `release`


cdef bint plain(object msg, bint readonly, Plain *into) except -1
cdef void release(Plain *given) noexcept
cdef object memory_of(Plain *given)
cdef bint plain_array(
    object obj, bint readonly, char **addr, Py_ssize_t *nbytes, int *number) except -1
cdef object array_type(int number)
