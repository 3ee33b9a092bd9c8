# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from libc.stdint cimport uint32_t

cdef enum:
    CONTEXTS = 8    # of one communicator


cdef class OuterCall:
    cdef readonly str name
    cdef object of
    cdef uint32_t first, end    # numbers of communicators
    cdef set others             # and of more
    cdef OuterCall above        # the block of this thread around it

    cdef bint has(self, uint32_t context) noexcept
    cdef str title(self)


cdef int open_calls             # blocks of all threads

cdef OuterCall find_outer(uint32_t context)


cdef inline OuterCall outer_of(uint32_t context):
    """Return the call of the program in which this thread uses a context; None outside of one."""
    return None if open_calls == 0 else find_outer(context)


cpdef str full_name(str call)
cpdef str name_of(uint32_t context, str call)
cpdef str place_of(uint32_t context, str call, str title)
