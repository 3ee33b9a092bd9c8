# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3


cdef class Pickle:
    """Pickle/unpickle Python objects."""

    cdef object dump
    cdef object load
    cdef bint plain                 # the functions are those of the module pickle
    cdef object protocol
    cdef object threshold
    cdef object cdumps(self, object obj)
    cdef object cloads(self, object data)


cdef object pickle_dump(object obj)
cdef object pickle_load(object buf)
