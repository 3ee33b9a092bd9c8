# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Memory as MPI sees it: an address and a number of bytes, whatever object they come from."""

import re
from typing import Any

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy, memmove, memset, strchr

from shmnd.mpi.buffers.array_interfaces cimport Foreign, describe
from shmnd.mpi.transport.outer_call cimport full_name

from shmnd.common.interruption import is_interruption
from shmnd.mpi.transport import hooks


cdef buffer _blank():
    return buffer.__new__(buffer)


cdef str _why_not(object obj, bint readonly, object error):
    """Return why the memory of an object cannot be used."""
    cdef buffer probe = _blank()
    name = type(obj).__name__
    if not readonly:
        try:
            PyObject_GetBuffer(obj, &probe.view, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT)
            probe.held = True
            return f"this {name} is read-only, and the call may write into it"
        except (BufferError, ValueError):
            pass
    if "contiguous" in str(error):
        return (
            f"the items of this {name} do not lie in a row ({error}): send a copy "
            "(numpy.ascontiguousarray), or name a datatype that has the gaps (Create_vector)"
        )
    return f"the memory of this {name} cannot be read: {error}"


cdef int _refuse_objects(object obj, const char *letters) except -1:
    """Raise BufferError for items that refer to objects; names of fields may have an O."""
    if "O" in re.sub(":[^:]*:", "", letters.decode("utf-8", "replace")):
        raise BufferError(
            f"the items of this {type(obj).__name__} are references to objects, which mean nothing "
            "in another process: send them by a call in lower case"
        )
    return 0


cdef buffer buffer_for(object obj, bint readonly, str call):
    """Return the memory of an object; an error names the call that got it."""
    try:
        return as_buffer(obj, readonly)
    except (BufferError, TypeError) as exc:
        if is_interruption(exc) or not exc.args:
            raise
        kind = BufferError if isinstance(exc, BufferError) else TypeError  # not one of the object's
        raise kind(f"{full_name(call)}: {exc.args[0]}") from exc


cdef buffer _part_of(buffer whole, Py_ssize_t start, Py_ssize_t nbytes):
    """Return a part of the memory of a buffer, which keeps that memory and not the buffer."""
    cdef buffer self = view_at(<char *> whole.view.buf + start, nbytes, whole.view.readonly)
    self.kept = whole._share()
    self.owner = whole.owner
    return self


cdef buffer as_buffer(object obj, bint readonly):
    """Return the memory of an object; writable unless `readonly`."""
    if isinstance(obj, buffer) and not (<buffer> obj).device:
        if (<buffer> obj).view.readonly and not readonly:
            raise BufferError(_why_not(obj, readonly, None))
        part = _part_of(obj, 0, (<buffer> obj).view.len)
        part.owner = obj
        return part
    cdef buffer self = _blank()
    cdef Foreign found
    cdef int place
    if PyObject_CheckBuffer(obj):
        try:
            PyObject_GetBuffer(
                obj, &self.view,
                PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT | (0 if readonly else PyBUF_WRITABLE),
            )
        except (BufferError, ValueError) as error:
            raise BufferError(_why_not(obj, readonly, error)) from None
        self.held = True
        if self.view.format != NULL and strchr(self.view.format, b"O") != NULL:
            _refuse_objects(obj, self.view.format)
        self.owner = obj
        self.itemsize_ = self.view.itemsize
        return self
    self.kept = describe(obj, &found)
    if found.readonly and not readonly:
        raise BufferError(f"this {type(obj).__name__} is read-only, and the call may write into it")
    self.owner = obj
    self.view.buf = found.data
    self.view.len = found.nbytes
    self.view.readonly = found.readonly
    self.itemsize_ = found.itemsize
    self.device = found.device
    for place in range(4):
        self.format_[place] = found.format[place]
    return self


cdef buffer view_at(void *address, Py_ssize_t nbytes, bint readonly):
    """Return memory at an address, which nothing keeps."""
    cdef buffer self = _blank()
    self.view.buf = address
    self.view.len = nbytes
    self.view.readonly = readonly
    return self


cdef bint is_stated(object memory) noexcept:
    """Return whether it is memory at an address of the program, with the length that it names."""
    if isinstance(memory, buffer) and isinstance((<buffer> memory).owner, buffer):
        memory = (<buffer> memory).owner
    return isinstance(memory, buffer) and (<buffer> memory).stated


@cython.no_gc_clear  # its end releases the buffer, whose object may live on
cdef class buffer:
    """Buffer."""

    def __cinit__(self, *args: Any) -> None:
        self.itemsize_ = 1
        self.format_[0] = b"B"
        if len(args) > 1:
            raise TypeError(f"buffer: expected at most 1 argument, not {len(args)}")
        if args:
            other = as_buffer(args[0], True)
            self._take(other)

    cdef _take(self, buffer other):
        """Take over the memory of another one, which is empty after it."""
        self.view = other.view
        self.held = other.held
        self.stated = other.stated
        self.device = other.device
        self.owner = other.owner
        self.kept = other.kept
        self.itemsize_ = other.itemsize_
        memcpy(self.format_, other.format_, 4)
        other.held = False

    cdef const char *letters(self) noexcept:
        """Return the format of an item; NULL is that of bytes."""
        return self.view.format if self.held or self.hold is not None else self.format_

    def __dealloc__(self) -> None:
        # Here, and not after it: releasing may run code, and an exception may be on its way.
        if self.held:
            PyBuffer_Release(&self.view)
        self.hold = self.kept = self.owner = None

    cdef object _share(self):
        """Return what keeps the memory, for a part or a view: they may outlast the buffer."""
        cdef buffer hold
        if self.held:
            hold = _blank()
            hold.view = self.view
            hold.held, self.held = True, False
            self.hold = hold
            # Without the reference to the object: the collector counts it as one of the hold.
            memset(&self.view, 0, sizeof(self.view))
            self.view.buf, self.view.len = hold.view.buf, hold.view.len
            self.view.readonly, self.view.format = hold.view.readonly, hold.view.format
        return self.kept if self.hold is None else self.hold

    @staticmethod
    def allocate(nbytes: int, clear: bool = False) -> buffer:
        """Buffer allocation."""
        cdef Py_ssize_t size = nbytes
        if size < 0:
            raise ValueError(f"buffer.allocate({size}): expected a length of 0 or more")
        cdef buffer self = as_buffer(PyByteArray_FromStringAndSize(NULL, size), False)
        if clear:
            memset(self.view.buf, 0, size)
        return self

    @staticmethod
    def frombuffer(obj: Any, readonly: bool = False) -> buffer:
        """Create buffer from buffer-like object."""
        cdef buffer self = as_buffer(obj, readonly)
        if readonly:
            self.view.readonly = True
        return self

    @staticmethod
    def fromaddress(address: int, nbytes: int, readonly: bool = False) -> buffer:
        """Create buffer from address and size in bytes."""
        cdef Py_ssize_t size = nbytes
        cdef size_t there = <size_t> <Py_ssize_t> address
        if size < 0:
            raise ValueError(f"buffer.fromaddress: a length of {size}; expected 0 or more")
        if there == 0 and size:
            raise ValueError(f"buffer.fromaddress: {size} bytes at address 0")
        cdef buffer self = view_at(<void *> there, size, readonly)
        self.stated = True
        return self

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.device:
            raise BufferError("memory of a device has no view")
        PyBuffer_FillInfo(view, self, self.view.buf, self.view.len, self.view.readonly, flags)
        self.viewed = True

    @property
    def address(self) -> int:
        """Buffer address."""
        return <size_t> self.view.buf

    @property
    def obj(self) -> Any:
        """Object exposing buffer."""
        return self.owner

    @property
    def nbytes(self) -> int:
        """Buffer size (in bytes)."""
        return self.view.len

    @property
    def readonly(self) -> bool:
        """Buffer is read-only."""
        return bool(self.view.readonly)

    @property
    def format(self) -> str:
        """Format of each element."""
        return "B"

    @property
    def itemsize(self) -> int:
        """Size (in bytes) of each element."""
        return 1

    def cast(self, format: str, shape: list[int] | tuple[int, ...] | None = None) -> memoryview:
        """Cast to a `memoryview` with new format or shape."""
        # Of a part: a release of this buffer need not count it.
        view = memoryview(self if self.device else _part_of(self, 0, self.view.len))
        return view.cast(format) if shape is None else view.cast(format, shape)

    def tobytes(self, order: str | None = None) -> bytes:
        """Return the data in the buffer as a byte string."""
        self._touch()
        return PyBytes_FromStringAndSize(<char *> self.view.buf, self.view.len)

    def toreadonly(self) -> buffer:
        """Return a readonly version of the buffer object."""
        if self.device:
            return buffer.frombuffer(self.owner, True)
        cdef buffer other = _part_of(self, 0, self.view.len)
        other.view.readonly = True
        return other

    def release(self) -> None:
        """Release the memory: now, or with the last part of it.

        After a view of this object, not before its own end: an array may refer to it alone.
        """
        cdef object shared = self._share() if self.viewed else None
        if self.held:
            PyBuffer_Release(&self.view)
        self.held = False
        self.owner = self.kept = None
        self.hold = shared
        memset(&self.view, 0, sizeof(self.view))
        self.device = False

    cdef int _touch(self) except -1:
        if self.device:
            raise BufferError("memory of a device cannot be read or written item by item")
        return 0

    cdef Py_ssize_t _place(self, object item) except -1:
        cdef Py_ssize_t place = item
        if place < 0:
            place += self.view.len
        if not 0 <= place < self.view.len:
            raise IndexError(f"index {item} in a buffer of {self.view.len} bytes")
        return place

    cdef object _range(self, slice item):
        start, stop, step = item.indices(self.view.len)
        if step != 1:
            raise IndexError(f"a buffer has slices of step 1, not {step}")
        return start, max(start, stop)

    def __len__(self) -> int:
        return self.view.len

    def __getitem__(self, item: int | slice, /) -> int | buffer:
        self._touch()
        if isinstance(item, slice):
            start, stop = self._range(item)
            return _part_of(self, start, stop - start)
        return (<unsigned char *> self.view.buf)[self._place(item)]

    def __setitem__(self, item: int | slice, value: Any, /) -> None:
        self._touch()
        if self.view.readonly:
            raise TypeError("the buffer is read-only")
        cdef buffer source
        cdef Py_ssize_t start, length
        if not isinstance(item, slice):
            start = self._place(item)
            (<unsigned char *> self.view.buf)[start] = value
            return
        first, last = self._range(item)
        start, length = first, last - first
        if isinstance(value, int):
            memset(<char *> self.view.buf + start, <unsigned char> value, length)
            return
        source = as_buffer(value, True)
        source._touch()
        if source.view.len != length:
            raise ValueError(f"{source.view.len} bytes do not fit a slice of {length}")
        memmove(<char *> self.view.buf + start, source.view.buf, length)

    def __delitem__(self, item: int | slice, /) -> None:
        raise NotImplementedError("a buffer cannot become shorter")


memory = buffer


def _alignment(info: Any) -> int:
    """Return the alignment in bytes that an info asks for; 1 where it asks for none."""
    from shmnd.mpi.objects.info import hints_of

    asked = hints_of(info, "Alloc_mem").get("mpi_minimum_memory_alignment", "")
    number = int(asked) if asked.isdecimal() and len(asked) < 10 else 0
    return number if number.bit_count() == 1 else 1


def Alloc_mem(size: int, info: Any = None) -> buffer:
    """Allocate memory for message passing and remote memory access."""
    cdef Py_ssize_t nbytes = size
    cdef buffer memory
    if nbytes < 0:
        raise ValueError(f"Alloc_mem({nbytes}): expected a length of 0 or more")
    alignment = 1 if info is None else _alignment(info)
    try:
        memory = as_buffer(hooks.allocate(nbytes + alignment - 1), False)
    except (MemoryError, OverflowError):
        raise MemoryError(f"Alloc_mem({nbytes}): so much memory is not free") from None
    if alignment == 1:
        return memory
    start = -<size_t>memory.view.buf % alignment
    return memory[start:start + nbytes]


def Free_mem(mem: buffer) -> None:
    """Free memory allocated with `Alloc_mem`."""
    if not isinstance(mem, buffer):
        raise TypeError(f"Free_mem({mem!r}): expected what Alloc_mem returned")
    mem.release()
