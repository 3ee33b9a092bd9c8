# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.objects.keyed cimport Keyed
from shmnd.mpi.datatypes.type_state cimport TypeState


cdef class Datatype(Keyed):
    """Datatype object."""

    cdef TypeState _state(self, str call)


cdef Datatype wrap(TypeState state)
