# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, binding=True, embedsignature.format=python
# cython: annotation_typing=False
"""Status: where a message came from, with what tag, how long it was."""

from typing import Any, Self

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBuffer_FillInfo
from shmnd.mpi.datatypes.datatype cimport Datatype, TypeState

from shmnd.mpi import constants
from shmnd.mpi.datatypes.datatype import BYTE
from shmnd.mpi.objects.errors import Exception as MPIException

cdef int _INTS = 6
cdef char *_format = b"i"
cdef Py_ssize_t _one = 4
cdef Py_ssize_t _six = 6


cdef TypeState _type(object datatype, str call):
    cdef TypeState type
    if (<Datatype?> datatype).ob is None:
        raise MPIException(constants.ERR_TYPE, f"Status.{call}: the datatype is null")
    type = <TypeState> (<Datatype> datatype).ob
    if not type.committed and call != "Set_elements":
        raise MPIException(
            constants.ERR_TYPE,
            f"Status.{call}: the datatype is not committed; call its Commit first",
        )
    return type


cdef class Status:
    """Status object."""

    def __cinit__(self, Status status=None):
        if status is None:
            self.c_source = constants.ANY_SOURCE
            self.c_tag = constants.ANY_TAG
            self.c_error = constants.SUCCESS
            return
        self.c_source = status.c_source
        self.c_tag = status.c_tag
        self.c_error = status.c_error
        self.c_cancelled = status.c_cancelled
        self.c_nbytes = status.c_nbytes

    def __eq__(self, other: object, /) -> bool:
        if not isinstance(other, Status):
            return NotImplemented
        cdef Status o = other
        return (
            self.c_source == o.c_source and self.c_tag == o.c_tag and self.c_error == o.c_error
            and self.c_nbytes == o.c_nbytes and self.c_cancelled == o.c_cancelled
        )

    def __ne__(self, other: object, /) -> bool:
        if not isinstance(other, Status):
            return NotImplemented
        return not (self == other)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...], dict[str, int]]:
        return (type(self), (), self.__getstate__())

    def __getstate__(self) -> dict[str, int]:
        return {
            "source": self.c_source, "tag": self.c_tag, "error": self.c_error,
            "count": self.c_nbytes, "cancelled": bool(self.c_cancelled),
        }

    def __setstate__(self, state: dict[str, int]) -> None:
        self.c_source = state["source"]
        self.c_tag = state["tag"]
        self.c_error = state["error"]
        self.c_nbytes = state["count"]
        self.c_cancelled = state["cancelled"]

    def Get_source(self) -> int:
        """Get message source."""
        return self.c_source

    def Set_source(self, source: int) -> None:
        """Set message source."""
        self.c_source = source

    @property
    def source(self) -> int:
        """Message source."""
        return self.c_source

    @source.setter
    def source(self, value: int) -> None:
        self.c_source = value

    def Get_tag(self) -> int:
        """Get message tag."""
        return self.c_tag

    def Set_tag(self, tag: int) -> None:
        """Set message tag."""
        self.c_tag = tag

    @property
    def tag(self) -> int:
        """Message tag."""
        return self.c_tag

    @tag.setter
    def tag(self, value: int) -> None:
        self.c_tag = value

    def Get_error(self) -> int:
        """Get message error."""
        return self.c_error

    def Set_error(self, error: int) -> None:
        """Set message error."""
        self.c_error = error

    @property
    def error(self) -> int:
        """Message error."""
        return self.c_error

    @error.setter
    def error(self, value: int) -> None:
        self.c_error = value

    def Get_count(self, datatype: Datatype = BYTE) -> int:
        """Get the number of *top level* elements."""
        cdef TypeState type = _type(datatype, "Get_count")
        if type.size == 0:
            return 0 if self.c_nbytes == 0 else constants.UNDEFINED
        if self.c_nbytes % type.size:
            return constants.UNDEFINED
        return self.c_nbytes // type.size

    @property
    def count(self) -> int:
        """Byte count."""
        return self.c_nbytes

    @count.setter
    def count(self, value: int) -> None:
        self.c_nbytes = value

    def Get_elements(self, datatype: Datatype) -> int:
        """Get the number of basic elements in a datatype."""
        return _type(datatype, "Get_elements").elements_in(self.c_nbytes)

    def Set_elements(self, datatype: Datatype, count: int) -> None:
        """Set the number of elements in a status."""
        cdef TypeState type = _type(datatype, "Set_elements")
        if count < 0:
            raise MPIException(
                constants.ERR_COUNT, f"Status.Set_elements: count is {count}, at least 0"
            )
        self.c_nbytes = type.bytes_of_elements(count)

    def Is_cancelled(self) -> bool:
        """Test to see if a request was cancelled."""
        return bool(self.c_cancelled)

    def Set_cancelled(self, flag: bool) -> None:
        """Set the cancelled state associated with a status."""
        self.c_cancelled = bool(flag)

    @property
    def cancelled(self) -> bool:
        """Cancelled state."""
        return bool(self.c_cancelled)

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self.c_cancelled = bool(value)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, &self.c_source, _six * _one, 0, flags)
        view.itemsize = _one
        if flags & PyBUF_FORMAT:
            view.format = _format
        if flags & PyBUF_ND:
            view.shape = &_six
        if flags & PyBUF_STRIDES == PyBUF_STRIDES:
            view.strides = &_one

    def tomemory(self) -> memoryview:
        """Return status memory view."""
        return memoryview(self)

    def py2f(self) -> list[int]:
        """Return the status as integers of Fortran."""
        return list(memoryview(self))

    @classmethod
    def f2py(cls, arg: list[int]) -> Self:
        """Return the status of integers of Fortran."""
        cdef Status status = cls()
        if len(arg) != _INTS:
            raise ValueError(f"Status.f2py: {len(arg)} integers; expected {_INTS}")
        view = memoryview(status)
        for place, number in enumerate(arg):
            view[place] = number
        return status
