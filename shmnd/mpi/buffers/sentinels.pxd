# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3


cdef class Sentinel:
    """A word that stands for a buffer; equal to its number, and not to be calculated with."""


cdef class BottomType(Sentinel):
    """Type of `BOTTOM`."""


cdef class InPlaceType(Sentinel):
    """Type of `IN_PLACE`."""


cdef class BufferAutomaticType(Sentinel):
    """Type of `BUFFER_AUTOMATIC`."""
