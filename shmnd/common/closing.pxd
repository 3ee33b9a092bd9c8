# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The end of a life in compiled code."""

cdef int end_of_life(object end) except -1

cdef class Ending:
    pass

cdef class Closing(Ending):
    pass
