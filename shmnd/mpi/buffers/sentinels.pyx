# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Words that stand for a buffer where there is none: BOTTOM, IN_PLACE, BUFFER_AUTOMATIC."""

from cpython.buffer cimport PyBuffer_FillInfo


cdef class Sentinel:
    """A word that stands for a buffer; equal to its number, and not to be calculated with."""

    _number = 0
    _name = "Sentinel"

    def __eq__(self, other: object, /) -> bool:
        if isinstance(other, Sentinel):
            return self._name == other._name
        return self._number == other if isinstance(other, int) else NotImplemented

    def __ne__(self, other: object, /) -> bool:
        return not (self == other)

    def __hash__(self) -> int:
        return hash(self._number)

    def __bool__(self) -> bool:
        return bool(self._number)

    def __int__(self) -> int:
        return self._number

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, None, NULL, 0, 0, flags)


cdef class BottomType(Sentinel):
    """Type of `BOTTOM`."""

    _name = "BOTTOM"

    def __index__(self) -> int:
        return self._number


cdef class InPlaceType(Sentinel):
    """Type of `IN_PLACE`."""

    _number = 1
    _name = "IN_PLACE"


cdef class BufferAutomaticType(Sentinel):
    """Type of `BUFFER_AUTOMATIC`."""

    _number = 2
    _name = "BUFFER_AUTOMATIC"


BOTTOM = BottomType()
IN_PLACE = InPlaceType()
BUFFER_AUTOMATIC = BufferAutomaticType()
