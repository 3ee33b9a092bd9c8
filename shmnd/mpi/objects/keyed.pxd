# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.objects.handle cimport Handle


cdef class Keyed(Handle):
    """A handle to an object with attributes and a name."""
