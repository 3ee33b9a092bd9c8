# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.objects.handle cimport Handle, State

cdef class ErrhandlerState(State):
    """How errors are handled."""

    cdef public object function     # of the program: function(object, code); None if predefined


cdef class Errhandler(Handle):
    """Error handler."""


cdef object mpi_error(Handle where, int error_class, str text)
