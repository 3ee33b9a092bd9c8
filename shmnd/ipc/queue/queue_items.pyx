# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Items of a queue: an object is packed into a block, and unpacked from it.

An item is one block: a header, the lengths of its parts, and the parts, each at a cache line of its
own. The first part is a pickle, or bytes as they are; the others are the buffers of the object's
arrays (pickle protocol 5), which its consumer uses where they lie, and has to itself.
"""

import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from shmnd.ipc.common.array_over cimport new_array
from shmnd.ipc.common.gate_c cimport *
from shmnd.ipc.queue.queue_c cimport *
from shmnd.ipc.queue.queue_memory cimport QueueMemory
from shmnd.ring.process.forks cimport forks

from shmnd.common.interruption import is_interruption, pass_on
from shmnd.ipc.types.read_only import reduced
from shmnd.status import Status, error

cnp.import_array()

cdef uint32_t PICKLED = 0, PLAIN = 1, ARRAY = 2
cdef size_t OUT_OF_BAND = 16384  # bytes from which a buffer is used where it lies
cdef size_t LONG_COPY = 262144  # bytes from which others run meanwhile
cdef uint32_t MOST_PARTS = 4096
cdef int MOST_TRIES = 16  # of a pickle that ends with KeyboardInterrupt: it may be its own
cdef uint64_t MOST_BYTES = 1 << 62


cdef size_t _aligned(size_t nbytes) noexcept:
    return (nbytes + 63) & ~<size_t>63


@cython.no_gc_clear  # its end needs the queue
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


@cython.final
cdef class _Sink:
    """The file of a pickler: keeps the pieces that are written, one but for a long item."""

    cdef list pieces

    def write(self, piece):
        """Take a piece."""
        self.pieces.append(piece if type(piece) is bytes else bytes(piece))
        return len(piece)


@cython.final
cdef class _Packer:
    """A pickler that is used again and again. `dispatch_table` is multiprocessing's."""

    cdef _Sink file
    cdef object dump
    cdef object clear
    cdef list buffers

    def __cinit__(self):
        self.buffers = []
        self.file = _Sink.__new__(_Sink)
        self.file.pieces = []
        pickler = ForkingPickler(self.file, 5, True, self._take)
        pickler.dispatch_table.setdefault(np.ndarray, reduced)  # unless the program has its own
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
cdef object _loads = pickle.loads
cdef dict _dtypes = {}  # by their code in an item, as a number

# The type of the last array that was put, and of the last one that was got: mostly the same again.
cdef object _put_dtype = None
cdef uint64_t _put_code = 0
cdef object _got_dtype = None
cdef uint64_t _got_code = 0


cdef struct _ArrayHead:
    uint64_t dtype  # up to 8 characters
    uint64_t ndim
    uint64_t shape[32]


cdef bint _know(object dtype) except -1:
    """Find the code of a type; False for one whose arrays go as a pickle."""
    global _put_dtype, _put_code
    cdef bytes code
    if dtype.kind not in "biufc" or dtype.metadata is not None:
        return False
    code = dtype.str.encode()
    if len(code) > 8:
        return False
    _put_code = 0
    memcpy(&_put_code, PyBytes_AS_STRING(code), len(code))
    _put_dtype = dtype
    _dtypes.setdefault(_put_code, dtype)
    return True


cdef bint _describe(cnp.ndarray array, _ArrayHead *head) except -1:
    """Describe a plain array; False for one that goes as a pickle."""
    cdef int axis
    if not cnp.PyArray_IS_C_CONTIGUOUS(array) or array.ndim > 32:
        return False
    if <void *>cnp.PyArray_DESCR(array) != <void *>_put_dtype and not _know(array.dtype):
        return False
    head.dtype = _put_code
    head.ndim = array.ndim
    for axis in range(array.ndim):
        head.shape[axis] = cnp.PyArray_DIMS(array)[axis]
    return True


cdef object _dtype_of(uint64_t code):
    """Return the type of a code that a producer wrote; None when it makes no sense."""
    global _got_dtype, _got_code
    if _got_dtype is not None and code == _got_code:
        return _got_dtype
    dtype = _dtypes.get(code)
    if dtype is None:
        try:
            dtype = np.dtype((<char *>&code)[:8].rstrip(b"\0").decode())
        except Exception as exc:  # also SyntaxError
            pass_on(exc)
            return None
        if dtype.kind not in "biufc":
            return None
        _dtypes[code] = dtype
    _got_dtype, _got_code = dtype, code
    return dtype


cdef object _array_of(const _ArrayHead *head, uint64_t size, uint64_t *nbytes):
    """Return the dtype of an array that a producer described in `size` bytes, and its bytes in
    `nbytes`; None for an invalid description. `head` is a copy.
    """
    cdef uint64_t axis
    if size < 16 or head.ndim > 32 or size != 16 + head.ndim * 8:
        return None
    dtype = _dtype_of(head.dtype)
    if dtype is None:
        return None
    nbytes[0] = dtype.itemsize
    for axis in range(head.ndim):
        if head.shape[axis] > MOST_BYTES:
            return None
        if head.shape[axis] and nbytes[0] > MOST_BYTES // head.shape[axis]:
            return None
        nbytes[0] *= head.shape[axis]
    return dtype


cdef class QueueItems(QueueMemory):
    """What packs and unpacks the items of a queue."""

    def pack(self, obj) -> int:
        """Copy an object into a block that is not sent yet; return the block."""
        return self.packed(obj)

    cdef uint64_t packed(self, obj) except? 0xFFFFFFFFFFFFFFFF:
        cdef _Packer packer
        cdef _ArrayHead head
        cdef bytes data
        cdef uint64_t ref
        self.check()
        if type(obj) is np.ndarray and _describe(obj, &head):
            return self._filled(ARRAY, <const char *>&head, 16 + head.ndim * 8, [obj])
        if type(obj) is bytes:
            data = obj
            return self._filled(PLAIN, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), None)
        packer = _packers.pop() if _packers else _Packer()
        packer.dump(obj)  # after an error nothing of the packer is used again
        self.check()  # a handler may have forked
        if len(packer.file.pieces) == 1:
            data = packer.file.pieces[0]
        else:
            data = b"".join(packer.file.pieces)
        ref = self._filled(PICKLED, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
                           packer.buffers or None)
        packer.buffers.clear()
        packer.file.pieces.clear()
        packer.clear()
        if len(_packers) < 8:
            _packers.append(packer)
        return ref

    cdef uint64_t _filled(self, uint32_t kind, const char *first, size_t nbytes,
                          list buffers) except? 0xFFFFFFFFFFFFFFFF:
        cdef size_t count = 0 if buffers is None else len(buffers)
        cdef size_t at = _aligned(64 + count * 8), whole = at + nbytes
        cdef uint64_t packed
        cdef shmnd_block *block
        cdef uint64_t *lengths
        cdef Py_buffer found
        cdef char *to
        for number in range(count):
            whole = _aligned(whole) + <size_t>buffers[number].nbytes
        packed = self.allocate(whole)
        block = self._place(<uint32_t>packed, <uint32_t>(packed >> 32))
        block.kind = kind
        block.bytes = nbytes
        block.buffers = count
        block.whole = whole
        to = <char *>block + at
        if nbytes < LONG_COPY:
            shmnd_copy_bytes(to, first, nbytes)
        else:
            with nogil:
                shmnd_copy_bytes(to, first, nbytes)
        lengths = <uint64_t *>(<char *>block + 64)
        at += nbytes
        for number in range(count):
            PyObject_GetBuffer(buffers[number], &found, PyBUF_SIMPLE)
            at = _aligned(at)
            to = <char *>block + at
            lengths[number] = found.len
            if <size_t>found.len < OUT_OF_BAND:
                shmnd_copy_bytes(to, found.buf, found.len)
            else:
                with nogil:
                    shmnd_copy_bytes(to, found.buf, found.len)
            at += found.len
            PyBuffer_Release(&found)
        return packed

    def drop(self, list box, uint32_t born=0) -> None:
        """Empty a box, and free its block unless that is the parent's: one step for handlers."""
        if box and born in (0, forks):
            self.unsent(box.pop())
        box.clear()

    cdef object unpacked(self, uint32_t ref):
        """Return the object of a block. What its producer wrote is read once, and checked."""
        cdef size_t room = 0, at, size, number
        cdef shmnd_block *block = self.block_at(ref, &room)
        cdef shmnd_block copy
        cdef uint64_t *lengths
        cdef _Held held = None
        cdef _Part part
        cdef list parts = []
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
        if copy.buffers == 0 and held is None and copy.bytes >= LONG_COPY:
            shmnd_block_free(block)
        if copy.kind == PLAIN:
            return first
        if copy.buffers == 0:
            return self._loaded(first, None)
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
        return self._loaded(first, parts)

    cdef object _loaded(self, bytes pickled, list buffers):
        """Return the object of a pickle, or what `partly` makes of one that fails and its error."""
        return self._loaded_at(pickled, buffers, 0)

    cdef object _loaded_at(self, bytes pickled, list buffers, int tries):
        try:
            try:
                return _loads(pickled) if buffers is None else _loads(pickled, buffers=buffers)
            except BaseException as failure:
                if self.partly is None or tries < MOST_TRIES and is_interruption(failure):
                    raise
                return self.partly(pickled, failure)
        except BaseException as exc:
            if tries < MOST_TRIES and is_interruption(exc):
                self.keep_again((pickled, buffers, tries + 1))
            raise

    # -- items that were taken for an interrupted caller --

    cdef object unkept(self):
        """Return the first item that is kept."""
        cdef tuple item = self.kept.pop(0)
        self.kept = self.kept or None
        return item[0] if len(item) == 1 else self._loaded_at(item[0], item[1], item[2])

    cdef _array(self, shmnd_block *block, uint32_t ref, shmnd_block *copy, size_t room):
        """Return a plain array: in its block, or copied when it is small."""
        cdef size_t at = _aligned(72), size = (<uint64_t *>(<char *>block + 64))[0]
        cdef uint64_t wanted = 0
        cdef _ArrayHead head
        cdef _Held held = None
        cdef _Part part
        cdef cnp.npy_intp dims[32]
        cdef cnp.ndarray array
        cdef uint64_t axis
        shmnd_read_once(&size)
        # Behind it lies the rest of the block, which is as long as the copy: room is 128 or more.
        memcpy(&head, <char *>block + at,
               copy.bytes if copy.bytes < sizeof(head) else sizeof(head))
        dtype = _array_of(&head, copy.bytes, &wanted) if copy.bytes >= 16 else None
        at = _aligned(at + copy.bytes)
        if dtype is None or at > room or size > room - at or wanted != size:
            raise error(Status.INTERNAL_ERROR, "Queue.get",
                        f"the queue's memory is damaged: an array of {size} bytes in {room}")
        for axis in range(head.ndim):
            dims[axis] = <cnp.npy_intp>head.shape[axis]
        if size >= OUT_OF_BAND:
            held = self._hold(block, ref)
        if held is not None:
            part = _Part.__new__(_Part)
            part.held = held
            part.data = <unsigned char *>block + at
            part.size = size
            return np.ndarray(tuple([dims[axis] for axis in range(head.ndim)]), dtype, part)
        array = new_array(dtype, <int>head.ndim, dims, NULL, 0)
        shmnd_copy_bytes(cnp.PyArray_DATA(array), <char *>block + at, size)
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
            shmnd_copy_bytes(to, source, nbytes)
    else:
        shmnd_copy_bytes(to, source, nbytes)
