# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3

cdef class State:
    """The object of MPI that handles refer to."""

    cdef public dict attrs          # number -> (key, value); None while there is none
    cdef public str name
    cdef public object errhandler   # an ErrhandlerState, or None for the default
    cdef public object info
    cdef readonly long handle       # a number of its own, positive
    cdef public bint predefined
    cdef public str label           # the name of the constant, or None
    cdef object __weakref__


cdef class BareHandle:
    """A handle without what makes it from another one."""

    cdef public State ob
    cdef object __weakref__


cdef class Handle(BareHandle):
    """A reference to an object of MPI; several may refer to one, and null to none."""


cdef int make_null(BareHandle handle) except -1
cdef State referred(BareHandle new, tuple args, dict kwargs)
