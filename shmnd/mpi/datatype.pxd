# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.keyed cimport Keyed
from shmnd.mpi.typestate cimport TypeState


cdef class Datatype(Keyed):
    """Datatype object."""

    cdef TypeState _state(self, str call)


cdef Datatype wrap(TypeState state)
