# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3


cdef class Status:
    """How a message was received; the fields lie in a row, as `tomemory` shows them."""

    cdef int c_source, c_tag, c_error
    cdef bint c_cancelled
    cdef long long c_nbytes
    cdef object __weakref__
