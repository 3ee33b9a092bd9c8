# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.objects.handle cimport Handle, State
from shmnd.mpi.datatypes.type_state cimport TypeState

ctypedef void (*mpi_kernel)(
    const void *left, const void *right, void *to, size_t count) noexcept nogil


cdef class OpState(State):
    """A reduction."""

    cdef readonly bint commutes
    cdef readonly int number        # of a predefined one, as in kernels.h; else -1
    cdef readonly object function   # of the program

    # inoutvec[i] = invec[i] op inoutvec[i]
    cdef int apply(
        self, const void *invec, void *inoutvec, Py_ssize_t count, TypeState type) except -1
    # to[i] = left[i] op right[i]; `to` is `right`, or if there is a kernel also `left`, or apart
    cdef int apply_to(
        self, const void *left, const void *right, void *to, Py_ssize_t count, TypeState type
    ) except -1
    # Whether it is one of windows alone: NO_OP, REPLACE.
    cdef bint is_of_windows(self) noexcept
    # Why the operation does not take a type; None: it does.
    cdef str refusal(self, TypeState type)
    # The loop for items of a type, to be called without the interpreter; NULL if there is none.
    cdef mpi_kernel kernel(self, TypeState type) noexcept
    cdef int _call(
        self, const void *invec, void *inoutvec, Py_ssize_t count, TypeState type) except -1


cdef class Op(Handle):
    """Reduction operation."""

    cdef bint known
