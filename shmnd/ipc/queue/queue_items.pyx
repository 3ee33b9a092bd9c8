# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Items of a queue: an object is packed into a block, and unpacked from it.

An item is one block: a header, the lengths of its parts, and the parts, each at a cache line of its
own. The first part is a pickle, or bytes as they are; the others are the buffers of the object's
arrays (pickle protocol 5), which its consumer uses where they lie, and has to itself.
"""

import pickle
from io import BytesIO
from multiprocessing.reduction import ForkingPickler

import numpy as np

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from shmnd.ipc.common.gate_c cimport *
from shmnd.ipc.queue.queue_c cimport *
from shmnd.ipc.queue.queue_memory cimport QueueMemory
from shmnd.ring.process.forks cimport forks

from shmnd.status import Status, error

cdef uint32_t PICKLED = 0, PLAIN = 1, ARRAY = 2
cdef size_t OUT_OF_BAND = 16384  # bytes from which a buffer is used where it lies
cdef size_t LONG_COPY = 262144  # bytes from which others run meanwhile
cdef uint32_t MOST_PARTS = 4096
cdef uint64_t MOST_BYTES = 1 << 62


cdef size_t _aligned(size_t nbytes) noexcept:
    return (nbytes + 63) & ~<size_t>63


cdef class _Held:
    """A block whose memory the program uses; given back when nothing refers to it any more."""

    def __dealloc__(self):
        if self.memory is None or self.born != forks or self.memory.born != forks:
            return  # in a child that was forked off it is the parent's
        shmnd_block_free(self.block)
        shmnd_block_unhold(self.memory.page, self.at)
        self.memory.free_holds[self.memory.free_hold_count] = self.at
        self.memory.free_hold_count += 1


cdef class _Part:
    """One buffer of an item, where it lies."""

    cdef _Held held
    cdef unsigned char *data
    cdef size_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, False, flags)


cdef class _Packer:
    """A pickler that is used again and again. `dispatch_table` is multiprocessing's."""

    cdef object file
    cdef object dump
    cdef object clear
    cdef list buffers

    def __cinit__(self):
        self.buffers = []
        self.file = BytesIO()
        pickler = ForkingPickler(self.file, 5, True, self._take)
        self.dump = pickler.dump
        self.clear = pickler.clear_memo

    def _take(self, buffer):
        try:
            raw = buffer.raw()
        except BufferError:
            return True  # not contiguous: in the pickle
        if raw.nbytes < OUT_OF_BAND or len(self.buffers) >= MOST_PARTS:
            return True
        self.buffers.append(raw)
        return False


cdef list _packers = []
cdef dict _dtypes = {}  # by their code in an item


cdef struct _ArrayHead:
    char dtype[8]
    uint64_t ndim
    uint64_t shape[32]


cdef bint _describe(obj, _ArrayHead *head) except -1:
    """Describe a plain array; False for one that goes as a pickle."""
    cdef bytes code
    dtype = obj.dtype
    if dtype.kind not in "biufc" or not obj.flags.c_contiguous or dtype.metadata is not None:
        return False
    code = dtype.str.encode()
    shape = obj.shape
    if len(code) > 8 or len(shape) > 32:
        return False
    _dtypes.setdefault(code, dtype)
    head.dtype = [0, 0, 0, 0, 0, 0, 0, 0]
    memcpy(head.dtype, PyBytes_AS_STRING(code), len(code))
    head.ndim = len(shape)
    for axis in range(head.ndim):
        head.shape[axis] = shape[axis]
    return True


cdef tuple _array_of(bytes first):
    """The dtype, shape and size that a producer described; None when they make no sense."""
    cdef uint64_t nbytes, axis
    cdef const _ArrayHead *head = <const _ArrayHead *>PyBytes_AS_STRING(first)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(first)
    if size < 16 or head.ndim > 32 or <uint64_t>size != 16 + head.ndim * 8:
        return None
    code = first[:8].rstrip(b"\0")
    dtype = _dtypes.get(code)
    if dtype is None:
        try:
            dtype = np.dtype(code.decode())
        except Exception:  # also SyntaxError
            return None
        if dtype.kind not in "biufc":
            return None
        _dtypes[code] = dtype
    nbytes = dtype.itemsize
    for axis in range(head.ndim):
        if head.shape[axis] and nbytes > MOST_BYTES // head.shape[axis]:
            return None
        nbytes *= head.shape[axis]
    return dtype, tuple([head.shape[axis] for axis in range(head.ndim)]), nbytes


cdef class QueueItems(QueueMemory):
    """What packs and unpacks the items of a queue."""

    def pack(self, obj) -> int:
        """Copy an object into a block that is not sent yet; return the block."""
        cdef _Packer packer
        cdef _ArrayHead head
        cdef bytes data
        self.check()
        if type(obj) is np.ndarray and _describe(obj, &head):
            return self._filled(ARRAY, <const char *>&head, 16 + head.ndim * 8, [obj])
        if type(obj) is bytes:
            data = obj
            return self._filled(PLAIN, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), [])
        packer = _packers.pop() if _packers else _Packer()
        packer.dump(obj)  # after an error nothing of the packer is used again
        with packer.file.getbuffer() as view:
            ref = self._filled_from(view, packer.file.tell(), packer.buffers)
        packer.buffers.clear()
        packer.clear()
        packer.file.seek(0)
        if len(_packers) < 8:
            _packers.append(packer)
        return ref

    cdef _filled_from(self, view, size_t nbytes, list buffers):
        cdef Py_buffer found
        PyObject_GetBuffer(view, &found, PyBUF_SIMPLE)
        try:
            return self._filled(PICKLED, <const char *>found.buf, nbytes, buffers)
        finally:
            PyBuffer_Release(&found)

    cdef _filled(self, uint32_t kind, const char *first, size_t nbytes, list buffers):
        cdef size_t count = len(buffers)
        cdef size_t at = _aligned(64 + count * 8), whole = at + nbytes
        cdef uint64_t packed
        cdef shmnd_block *block
        cdef uint64_t *lengths
        cdef Py_buffer found
        cdef char *to
        for each in buffers:
            whole = _aligned(whole) + <size_t>each.nbytes
        packed = self.allocate(whole)
        block = self._place(<uint32_t>packed, <uint32_t>(packed >> 32))
        block.kind = kind
        block.bytes = nbytes
        block.buffers = count
        block.whole = whole
        to = <char *>block + at
        if nbytes < LONG_COPY:
            memcpy(to, first, nbytes)
        else:
            with nogil:
                memcpy(to, first, nbytes)
        lengths = <uint64_t *>(<char *>block + 64)
        at += nbytes
        for number in range(count):
            PyObject_GetBuffer(buffers[number], &found, PyBUF_SIMPLE)
            at = _aligned(at)
            to = <char *>block + at
            lengths[number] = found.len
            with nogil:
                memcpy(to, found.buf, found.len)
            at += found.len
            PyBuffer_Release(&found)
        return packed

    def drop(self, uint64_t packed) -> None:
        """Return a block that was not sent to the free ones."""
        self.unsent(packed)

    cdef object unpacked(self, uint32_t ref):
        """The object of a block. What its producer wrote is read once, and checked."""
        cdef size_t room = 0, at, size, number
        cdef shmnd_block *block = self.block_at(ref, &room)
        cdef shmnd_block copy
        cdef uint64_t *lengths
        cdef _Held held = None
        cdef _Part part
        cdef list parts
        if block == NULL:
            raise error(Status.INTERNAL_ERROR, "Queue.get",
                        f"the queue's memory is damaged: there is no block {ref}")
        copy = block[0]
        shmnd_read_once(&copy)
        at = _aligned(64 + copy.buffers * 8) if copy.buffers <= MOST_PARTS else room + 1
        if at > room or copy.bytes > room - at:
            raise error(Status.INTERNAL_ERROR, "Queue.get",
                        f"the queue's memory is damaged: an item of {copy.bytes} bytes and "
                        f"{copy.buffers} parts in a block of {room}")
        if copy.kind == ARRAY and copy.buffers == 1:
            return self._array(block, ref, &copy, room)
        if copy.kind > PLAIN:
            raise error(Status.INTERNAL_ERROR, "Queue.get",
                        f"the queue's memory is damaged: an item of kind {copy.kind} with "
                        f"{copy.buffers} parts")
        if copy.buffers == 0 and copy.bytes < LONG_COPY:
            first = PyBytes_FromStringAndSize(<char *>block + at, copy.bytes)
            shmnd_block_free(block)
            shmnd_block_pass(self.page)
        else:
            held = self._hold(block, ref)
            first = PyBytes_FromStringAndSize(NULL, copy.bytes)
            _copy_long(PyBytes_AS_STRING(first), <char *>block + at, copy.bytes, held is not None)
        if copy.kind == PLAIN:
            if copy.buffers == 0 and held is None and copy.bytes >= LONG_COPY:
                shmnd_block_free(block)
            return first
        if copy.buffers == 0:
            if held is None and copy.bytes >= LONG_COPY:
                shmnd_block_free(block)
            return pickle.loads(first)
        parts = []
        lengths = <uint64_t *>(<char *>block + 64)
        at += copy.bytes
        for number in range(copy.buffers):
            size = lengths[number]
            shmnd_read_once(&size)
            at = _aligned(at)
            if at > room or size > room - at:
                raise error(Status.INTERNAL_ERROR, "Queue.get",
                            f"the queue's memory is damaged: a part of {size} bytes")
            if held is None:
                parts.append(bytearray((<unsigned char *>block + at)[:size]))
            else:
                part = _Part.__new__(_Part)
                part.held = held
                part.data = <unsigned char *>block + at
                part.size = size
                parts.append(part)
            at += size
        if held is None:
            shmnd_block_free(block)
        return pickle.loads(first, buffers=parts)

    cdef _array(self, shmnd_block *block, uint32_t ref, shmnd_block *copy, size_t room):
        """A plain array: in its block, or copied when it is small."""
        cdef size_t at = _aligned(72), size = (<uint64_t *>(<char *>block + 64))[0]
        cdef _Held held = None
        cdef _Part part
        cdef Py_buffer found
        shmnd_read_once(&size)
        first = PyBytes_FromStringAndSize(
            <char *>block + at, copy.bytes if copy.bytes < 272 else 272
        )
        described = _array_of(first)
        at = _aligned(at + len(first))
        if described is None or at > room or size > room - at or described[2] != size:
            raise error(Status.INTERNAL_ERROR, "Queue.get",
                        f"the queue's memory is damaged: an array of {size} bytes in {room}")
        dtype, shape, _ = described
        if size >= OUT_OF_BAND:
            held = self._hold(block, ref)
        if held is not None:
            part = _Part.__new__(_Part)
            part.held = held
            part.data = <unsigned char *>block + at
            part.size = size
            return np.ndarray(shape, dtype, part)
        array = np.empty(shape, dtype)
        PyObject_GetBuffer(array, &found, PyBUF_SIMPLE | PyBUF_WRITABLE)
        memcpy(found.buf, <char *>block + at, min(size, <size_t>found.len))
        PyBuffer_Release(&found)
        shmnd_block_free(block)
        return array

    cdef _Held _hold(self, shmnd_block *block, uint32_t ref):
        """Note that the program uses the block; None when it uses too many already."""
        cdef _Held held
        if not self.free_hold_count:
            return None
        held = _Held.__new__(_Held)
        self.free_hold_count -= 1
        held.at = self.free_holds[self.free_hold_count]
        held.block = block
        held.born = forks
        held.memory = self
        shmnd_block_hold(self.page, held.at, ref)
        return held


cdef _copy_long(char *to, const char *source, size_t nbytes, bint others):
    if others and nbytes >= LONG_COPY:
        with nogil:
            memcpy(to, source, nbytes)
    else:
        memcpy(to, source, nbytes)
