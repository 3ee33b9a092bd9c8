# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3


cdef struct Foreign:
    char *data
    Py_ssize_t nbytes
    Py_ssize_t itemsize
    char format[4]
    bint readonly
    bint device


cdef object describe(object obj, Foreign *found)
