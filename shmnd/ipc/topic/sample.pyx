# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Samples: what a subscriber receives, and what keeps its memory."""

cimport cython
cimport numpy as cnp
from cpython.buffer cimport PyBuffer_FillInfo, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t
from libc.string cimport memcpy

from shmnd.ipc.common.array_over cimport NPY_ARRAY_CARRAY_RO, array_over, new_array
from shmnd.ipc.common.limits cimport LONG_COPY
from shmnd.ipc.topic.topic_c cimport *
from shmnd.ring.process.forks cimport forks

from shmnd.ipc.errors import Closed

cnp.import_array()

cdef uint64_t _MOST_BYTES = <uint64_t>1 << 46
cdef uint64_t _ROW = 1 | 1 << 8  # an array of the topic's type with one dimension
cdef object _BYTE = cnp.dtype("u1")


@cython.no_gc_clear  # samples that end later in the same garbage write to the page
cdef class Origin:
    """What a sample needs of the board that it was read from."""


# Nothing that these two refer to refers to what a program made: they are in no cycle.


@cython.freelist(64)
@cython.no_gc
@cython.final
cdef class Held:
    """A slot that views of its sample hold; given back when nothing refers to it any more."""

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self.base, self.nbytes, 1, flags)

    def __dealloc__(self):
        if self.origin is not None and self.origin.born == forks:
            shmnd_reading_let_go(&self.origin.r, self.hold)


@cython.freelist(64)
@cython.no_gc
cdef class Sample:
    """A sample that was received. Its memory is kept until it is released and no view is left."""

    def __init__(self):
        raise TypeError("a sample is made by Subscriber.receive")

    def __dealloc__(self):
        self.let_go()

    cdef void let_go(self) noexcept:
        if self.origin is not None and self.hold != SHMND_NO_SLOT:
            if self.origin.born == forks:
                shmnd_reading_let_go(&self.origin.r, self.hold)
            self.hold = SHMND_NO_SLOT

    cdef object keeper(self):
        """Return the owner of the payload for a view. From the first view on it holds the slot."""
        cdef Held held
        if self.hold != SHMND_NO_SLOT:
            held = Held.__new__(Held)
            held.hold = self.hold
            held.origin = self.origin
            held.memory = self.owner
            held.base = self.base
            held.nbytes = self.payload + (self.info >> 32) + (self.info >> 16 & 0xFFFF)
            self.hold = SHMND_NO_SLOT
            self.owner = held
        return self.owner

    cdef const unsigned char *start(self):
        if self.info & SHMND_INFO_INLINE:
            return <const unsigned char *>&self.body[0]
        return self.base

    def _check(self):
        if self.origin is None:
            raise TypeError("a sample is made by Subscriber.receive")
        if not self.is_open:
            raise Closed("Sample: it was released; take its array before, which keeps the memory")

    cdef object in_place(self, object dtype, int ndim, uint64_t *dims):
        """Return an array of a type over the payload, without a copy where its alignment
        permits."""
        cdef cnp.npy_intp shape[32]
        cdef cnp.ndarray array
        cdef int i
        for i in range(ndim):
            shape[i] = <cnp.npy_intp>dims[i]
        if not self.info & SHMND_INFO_INLINE:
            return array_over(dtype, ndim, shape, <void *>self.base, NPY_ARRAY_CARRAY_RO,
                              self.keeper())
        if (<cnp.dtype>dtype).alignment <= 8:
            return array_over(dtype, ndim, shape, &self.body[0], NPY_ARRAY_CARRAY_RO, self)
        array = new_array(dtype, ndim, shape, NULL, 0)
        memcpy(cnp.PyArray_DATA(array), &self.body[0], cnp.PyArray_NBYTES(array))
        cnp.PyArray_CLEARFLAGS(array, cnp.NPY_ARRAY_WRITEABLE)
        return array

    @property
    def array(self):
        """The payload as a read-only array, in place; bytes as an array of uint8."""
        cdef uint64_t dims[32]
        cdef uint32_t packed[4]
        cdef uint64_t count, size
        cdef int i, ndim
        cdef uint32_t kind = self.info & 0xFF
        cdef Origin origin = self.origin
        if not self.is_open:
            self._check()
        if origin.items is not None and self.info & 0x7FFF == _ROW:  # most samples
            dims[0] = self.payload // origin.item_bytes
            if dims[0] * origin.item_bytes == self.payload:
                return self.in_place(origin.items, 1, dims)
        if kind == 1:
            dtype = origin.form.dtype
            if dtype is not None and origin.form.shape is None:
                ndim = self.info >> 8 & 0x7F
                size = (<cnp.dtype>dtype).itemsize
                if ndim != 1 and ndim <= 4:
                    memcpy(packed, &self.body[3], sizeof(packed))
                    count = size
                    for i in range(ndim):
                        dims[i] = packed[i]
                        if dims[i] and count > _MOST_BYTES // dims[i]:
                            count = UINT64_MAX
                            break
                        count *= dims[i]
                    if count == self.payload:
                        return self.in_place(dtype, ndim, dims)
            elif dtype is not None and len(origin.form.shape) <= 32 \
                    and origin.form.nbytes == self.payload:
                ndim = len(origin.form.shape)
                for i in range(ndim):
                    dims[i] = origin.form.shape[i]
                return self.in_place(dtype, ndim, dims)
        elif kind == 4:
            return self._described()
        elif kind in (2, 3):
            dims[0] = self.payload
            return self.in_place(_BYTE, 1, dims)
        raise ValueError(f"Sample: {self.publisher} sent {self.payload} bytes of kind {kind} with "
                         f"{self.info >> 8 & 0x7F} dimensions, which are no {origin.form}")

    def _described(self):
        """Return the array of a sample that brings its type along."""
        cdef uint64_t dims[32]
        cdef uint64_t count
        self._check()
        dtype, shape = self.origin.form.described(self._meta())
        count = dtype.itemsize
        if len(shape) > 32:
            raise ValueError(f"Sample: {len(shape)} dimensions; at most 32")
        for i, each in enumerate(shape):
            dims[i] = each
            count *= each
        if count != self.payload:
            raise ValueError(f"Sample: {self.publisher} sent {self.payload} bytes, and describes "
                             f"{count}")
        return self.in_place(dtype, len(shape), dims)

    def _meta(self):
        """Return a copy of the description behind the payload."""
        self._check()
        if self.info & SHMND_INFO_INLINE:
            return b""
        return PyBytes_FromStringAndSize(
            <const char *>self.base + self.payload + (self.info >> 32), self.info >> 16 & 0xFFFF)

    cdef object copied(self):
        """Return a copy of the payload, as bytes."""
        cdef const char *start = <const char *>self.start()
        cdef size_t nbytes = self.payload
        cdef char *copy
        if nbytes <= LONG_COPY:
            return PyBytes_FromStringAndSize(start, nbytes)
        # Other threads run meanwhile, and may release this sample.
        keeper = self.keeper()
        made = PyBytes_FromStringAndSize(NULL, nbytes)
        copy = PyBytes_AS_STRING(made)
        with nogil:
            memcpy(copy, start, nbytes)
        keeper = None
        return made

    def _bytes(self):
        """Return a copy of the payload."""
        self._check()
        return self.copied()

    def _memory(self):
        """Return the payload as a read-only view: in place, or over a copy of one in the line."""
        self._check()
        if self.info & SHMND_INFO_INLINE or not self.payload:
            return memoryview(self._bytes())
        return memoryview(self.keeper()).toreadonly()[:self.payload]

    @property
    def _kind(self):
        return self.info & 0xFF

    @property
    def publisher(self):
        """The publisher that sent it: hashable, and printed with its topic and process."""
        return None if self.origin is None else self.origin.publisher

    @property
    def value(self):
        """The value by the topic's type: array, record, bytes or object."""
        cdef Origin origin = self.origin
        if not self.is_open:
            self._check()
        if self.info & 0xFF == 2 and origin.as_bytes:
            return self.copied()
        if self.info & 0xFF == 1:
            if origin.items is None:
                if not origin.form.is_record:
                    return self.array
            elif self.info >> 8 & 0x7F or not cnp.PyDataType_HASFIELDS(origin.items):
                return self.array
        return origin.form.value_of(self)

    @property
    def kind(self):
        """What it holds: 'array' (also of a record), 'bytes' or 'object'."""
        cdef uint64_t kind = self.info & 0xFF
        if not 1 <= kind <= 4:
            raise ValueError(f"Sample: {self.publisher} sent kind {kind}, which is none")
        return ("array", "bytes", "object", "array")[kind - 1]

    @property
    def header(self):
        """The header that was sent along, or None."""
        cdef uint64_t nbytes = self.info >> 32
        if not self.is_open:
            self._check()
        if nbytes == 0:
            return None
        return PyBytes_FromStringAndSize(<const char *>self.start() + self.payload, nbytes)

    @property
    def sequence(self):
        """The number of the sample, counted by its publisher."""
        return self.position

    @property
    def timestamp_ns(self):
        """When it was sent, by CLOCK_MONOTONIC."""
        return self.when_ns

    @property
    def nbytes(self):
        """The bytes of its payload."""
        return self.payload

    def release(self):
        """Return the memory, now or when the last view of it is gone. Harmless twice."""
        self.is_open = False
        self.let_go()
        self.owner = None
        self.base = NULL

    def close(self):
        """Return the memory, as `release` does."""
        self.release()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.release()

    def __getbuffer__(self, Py_buffer *view, int flags):
        try:
            array = self.array  # of an answer: its own
        except Closed as exc:
            raise BufferError(str(exc)) from None
        PyObject_GetBuffer(array, view, flags)

    def __array__(self, dtype=None, copy=None):
        import numpy

        found = self.array
        if dtype is not None and found.dtype != dtype:
            if copy is False:
                raise ValueError("Sample.__array__: another type takes a copy")
            return found.astype(dtype)
        return numpy.array(found) if copy else found

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle a Sample: it is memory of this process; pickle its value")

    def __repr__(self):
        state = f"{self.payload} bytes" if self.is_open else "released"
        return f"<Sample {self.position} of {self.publisher}, {state}>"
