# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t


cdef class Result:
    cdef readonly object status
    cdef readonly object queue_pair_context
    cdef readonly object request_context
    cdef readonly object request_type
    cdef uint32_t bytes, flags


cdef class FailedResult(Result):
    cdef str why


cdef class Bound:
    cdef object context, window
