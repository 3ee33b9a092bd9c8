# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Elements of scatter/gather lists."""

from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBuffer_Release, PyObject_GetBuffer
from cpython.number cimport PyIndex_Check
from libc.stdint cimport uint64_t

from shmnd.ring cimport c

from shmnd.status import Status, error
from shmnd.common.arguments import integer, shown

cdef extern from *:
    """
    static PyBufferProcs *shmnd_buffer_methods(PyObject *kind)
    {
        return ((PyTypeObject *)kind)->tp_as_buffer;
    }
    """
    ctypedef struct PyBufferProcs:
        void *bf_getbuffer
        void *bf_releasebuffer
    PyBufferProcs *buffer_methods "shmnd_buffer_methods"(object kind)


cdef inline object _whole(object value):
    """Return a value as an int; None if it is not an integer."""
    if type(value) is int:
        return value
    return integer(value) if PyIndex_Check(value) else None


cdef str _not_int(object whole, object value):
    """Return what to pass in place of a value that is not an integer."""
    return f"; pass an int, not {type(value).__name__}" if whole is None else ""


cdef class Sge:
    """Sge(buffer_or_address, length, token)\n--\n\nA stretch of registered memory. Immutable."""

    def __init__(self, buffer_or_address, length, token) -> None:
        cdef Py_buffer view
        # Checked first: numpy's integers are buffers too, of their own few bytes.
        address = _whole(buffer_or_address)
        if address is None:
            try:
                PyObject_GetBuffer(buffer_or_address, &view, PyBUF_ANY_CONTIGUOUS)
            except TypeError as exc:
                raise error(Status.INVALID_PARAMETER_1, "Sge",
                            f"{shown(buffer_or_address)} is neither a buffer nor an address; pass "
                            "bytes, an array, or an address as an int") from exc
            except (BufferError, ValueError) as exc:
                raise error(Status.INVALID_PARAMETER_1, "Sge",
                            f"the buffer is not contiguous: {exc}") from exc
            address = <size_t>view.buf
            if length is None:
                length = view.len
            PyBuffer_Release(&view)
            self.owner = buffer_or_address
        nbytes, number = _whole(length), _whole(token)
        if nbytes is None or not 0 <= nbytes <= 0xFFFFFFFF:
            raise error(Status.INVALID_PARAMETER_2, "Sge",
                        f"length {shown(length)} is outside 0..2**32-1{_not_int(nbytes, length)}")
        if not 0 <= address <= 0xFFFFFFFFFFFFFFFF:
            raise error(Status.INVALID_PARAMETER_1, "Sge",
                        f"address {shown(address)} is outside 0..2**64-1")
        if number is None or not 0 <= number <= 0xFFFFFFFF:
            raise error(Status.INVALID_PARAMETER_3, "Sge",
                        f"token {shown(token)} is outside 0..2**32-1; pass "
                        "MemoryRegion.local_token, or 0 with OpFlag.INLINE")
        self.raw.address = address
        self.raw.length = nbytes
        self.raw.token = number

    @property
    def address(self) -> int:
        """Its address."""
        return self.raw.address

    @property
    def length(self) -> int:
        """Its length in bytes."""
        return self.raw.length

    @property
    def token(self) -> int:
        """The local token of the region that covers it."""
        return self.raw.token

    def __eq__(self, other):
        if not isinstance(other, Sge):
            return NotImplemented
        cdef Sge that = other
        return (self.raw.address == that.raw.address and self.raw.length == that.raw.length
                and self.raw.token == that.raw.token)

    def __hash__(self):
        return hash((self.raw.address, self.raw.length, self.raw.token))

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return Sge, (self.raw.address, self.raw.length, self.raw.token)

    def __repr__(self) -> str:
        return f"Sge({self.raw.address:#x}, {self.raw.length}, {self.raw.token:#x})"


class _InPython:
    """A buffer whose methods are Python's, as classes may have them since Python 3.12."""

    def __buffer__(self, flags):
        raise BufferError

    def __release_buffer__(self, view):
        raise BufferError


cdef PyBufferProcs *_in_python = buffer_methods(_InPython)


cdef bint is_in_python(object buffer) noexcept:
    """Return whether to get or release this buffer runs Python code, which may do anything."""
    cdef PyBufferProcs *methods = buffer_methods(type(buffer))
    if methods == NULL or _in_python == NULL:
        return False
    return ((_in_python.bf_getbuffer != NULL and methods.bf_getbuffer == _in_python.bf_getbuffer)
            or (_in_python.bf_releasebuffer != NULL
                and methods.bf_releasebuffer == _in_python.bf_releasebuffer))


cdef int require_held(Sge sge, str call) except -1:
    """Raise unless an element is still within the buffer that it was made of, which may have shrunk
    or moved since. An element of a bare address passes; the caller checks it."""
    cdef Py_buffer view
    cdef uint64_t begin, end
    if sge.owner is None:
        return 0
    begin = end = 0
    try:
        PyObject_GetBuffer(sge.owner, &view, PyBUF_ANY_CONTIGUOUS)
    except (BufferError, ValueError):
        pass  # the buffer was released or closed
    else:
        begin = <size_t>view.buf
        end = begin + <uint64_t>view.len
        PyBuffer_Release(&view)
    if sge.raw.address == begin and sge.raw.length <= end - begin:
        return 0
    raise error(Status.ACCESS_VIOLATION, call,
                f"{sge.raw.length} bytes at {sge.raw.address:#x} are not all in their buffer, "
                f"which has {end - begin} at {begin:#x} now")


cdef int require_list(object sge, str call) except -1:
    """Raise TypeError unless this is a list of elements; a text or a buffer is none."""
    if not isinstance(sge, (list, tuple)):
        raise TypeError(f"{call}: sge must be an Sge, a list or tuple of them, or None, "
                        f"not {type(sge).__name__}; MemoryRegion.sge(offset, length) makes one")
    return 0


cdef int gather_sges(object sge, c.shmnd_sge *out, str call, uint32_t most) except -1:
    """Write a scatter/gather list to `out`, which holds 16 elements; return its length."""
    cdef uint32_t n = 0
    if isinstance(sge, Sge):
        out[0] = (<Sge>sge).raw
        return 1
    if sge is None:
        return 0
    require_list(sge, call)
    for item in sge:  # counted here: a class derived from list may have a length of its own
        if n == 16:
            raise error(Status.DATA_OVERRUN, call,
                        f"{max(len(sge), n + 1)} scatter/gather elements, at most {most} are "
                        "granted, and never more than 16; merge adjacent elements, or post several "
                        "requests")
        if not isinstance(item, Sge):
            raise TypeError(f"{call}: a scatter/gather list holds Sge, not {type(item).__name__}")
        out[n] = (<Sge>item).raw
        n += 1
    return n


def inline_bytes(sge, call) -> bytearray:
    """Return the bytes of a list of inline data.

    An element may have the bare address of any memory; an invalid one raises, and does not crash.
    """
    cdef c.shmnd_spans to, from_
    cdef c.shmnd_process me = c.shmnd_this_process()
    cdef Sge item
    cdef uint64_t done = 0, total = 0
    items = list(sge)
    for item in items:
        if item is None:
            raise TypeError(f"{call}: a scatter/gather list holds Sge, not None")
        total += item.raw.length
    data = bytearray(total)
    cdef unsigned char *begin = data
    for item in items:
        if item.raw.length == 0:
            continue
        c.shmnd_spans_clear(&to)
        c.shmnd_spans_clear(&from_)
        c.shmnd_spans_add(&to, <size_t>(begin + done), item.raw.length)
        c.shmnd_spans_add_remote(&from_, item.raw.address, item.raw.length)
        if c.shmnd_vm_copy(&me, &to, &from_) != 0:
            raise error(Status.ACCESS_VIOLATION, call,
                        f"{item!r}: these bytes cannot be read in this process")
        done += item.raw.length
    return data
