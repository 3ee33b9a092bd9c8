# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3

from shmnd.mpi.buffers.plain cimport Plain


cdef class Pickle:
    """Pickle/unpickle Python objects."""

    cdef object dump
    cdef object load
    cdef bint plain                 # `dump` is that of the module pickle
    cdef bint small                 # ... and its protocol is that of small_pickle.h
    cdef object protocol
    cdef object threshold
    cdef bytes small_bytes(self, object obj)
    cdef object cdumps(self, object obj)
    cdef int message(self, object obj, Plain *into) except -1
    cdef object cloads(self, object data)
    cdef object load_memory(self, const void *data, Py_ssize_t size)
    cdef object copy_of(self, const void *data, Py_ssize_t size)
    cdef object load_copy(self, object copy)


cdef int pickle_message(object obj, Plain *into) except -1
cdef object pickle_load(const void *data, Py_ssize_t size)
cdef object pickle_copy(const void *data, Py_ssize_t size)
cdef object pickle_load_copy(object copy)
