# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.datatypes.type_state cimport TypeState

cdef extern from "objects/small_int.h":
    bint shmpi_small_int(object given, int *value)


cdef class Spec:
    """What one call sends from, or receives to."""

    cdef char *addr             # of the first item (simple), of the buffer (v, w)
    cdef Py_ssize_t nbytes      # of the buffer
    cdef Py_ssize_t count       # items; for each block where there are blocks
    cdef TypeState type
    cdef Py_ssize_t blocks
    cdef Py_ssize_t *counts     # v, w
    cdef Py_ssize_t *displs     # v: in extents; w: in bytes
    cdef list types             # w
    cdef bint bottom, readonly
    cdef object keep            # what keeps the memory
    cdef str call               # of the program, for errors

    cdef int hold(self, object obj, bint readonly, bint typed) except -1
    cdef int name_type(self, object datatype, bint nothing) except -1
    cdef Py_ssize_t items(self, Py_ssize_t displ) except -1
    cdef int check(
        self, Py_ssize_t displ, Py_ssize_t count, TypeState type, Py_ssize_t off) except -1
    cdef bint _before(self, Py_ssize_t first, Py_ssize_t last) except -1
    cdef int row(self) except -1
    cdef int reach(
        self, Py_ssize_t displ, Py_ssize_t count, TypeState type, Py_ssize_t off) except -1


cdef TypeState usable_type(object given, str call)
cdef Py_ssize_t number_of(object given, str what, str call) except? -0x7fffffffffffffff
cdef enum:
    NO_BLOCK = -1


cdef Spec spec_simple(object msg, bint readonly, int rank, int blocks, str call)
cdef Spec spec_vector(object msg, bint readonly, int rank, int blocks, str call)
cdef Spec spec_vector_w(object msg, bint readonly, int rank, int blocks, str call)
