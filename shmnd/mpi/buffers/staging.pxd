# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.buffers.spec cimport Spec


cdef int flatten(
    Spec spec, bint sends, char **address, Py_ssize_t *length, char **staged) except -1
