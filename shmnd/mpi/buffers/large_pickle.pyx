# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Pickles of large objects: written into memory that all ranks map, and read from there.

The sender's pickle lies in its arena, where the module pickle has put it: a receiver copies it
without the kernel. One that waits for it in `recv` copies the large bytes and bytearrays, which the
data of arrays are in a pickle, straight into the new objects (`pickle_bodies.h`). So each byte is
copied once on either side. The message is the pickle that `pickle.dumps` returns.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from shmnd.mpi.transport.engine cimport arena

from pickle import Pickler
from pickle import dumps as _py_dumps
from pickle import loads as _py_loads

cdef extern from "stdbool.h":
    ctypedef unsigned char flag "bool"

cdef extern from "wire/copy_bytes.h" nogil:
    void shmnd_copy_bytes(void *to, const void *from_, size_t n)

cdef extern from "transport/copying/arena.h" nogil:
    struct shmpi_arena:
        pass
    void *shmpi_arena_take(shmpi_arena *a, uint64_t n, flag *zero)
    void shmpi_arena_return(shmpi_arena *a, void *p)

cdef extern from "buffers/pickle_bodies.h" nogil:
    enum:
        SHMPI_BODIES
        SHMPI_BODY_LEAST
        SHMPI_OP_NEXT_BUFFER
    struct shmpi_body:
        uint64_t head, at, bytes
        flag array
    int shmpi_find_bodies(const unsigned char *pickle, uint64_t n, shmpi_body *bodies)

cdef enum:
    _SLACK = 4096  # bytes of room behind a body: what follows it is short
    _LONG_COPY = 256 << 10  # bytes that are copied without the interpreter's lock
    _PROTOCOL = 5  # the one that dump_bytes() writes
    _LARGE = 64 << 10  # bytes of a pickle that is worth a file in the arena
    _MOST_TYPES = 100  # that are known to be large

cdef bytes _ONE_BODY = b"\x80\x05\x97\x94."  # of a pickle of bytes
cdef set _large = set()  # types of which the last pickle was large


cdef int _copy(char *to, const char *source, Py_ssize_t n) except -1:
    if n < _LONG_COPY:
        shmnd_copy_bytes(to, source, n)
    else:
        with nogil:
            shmnd_copy_bytes(to, source, n)
    return 0


# -- writing --

cdef class PickleFile:
    """The file that an object is pickled to: memory of the arena where it has room for it."""

    def __cinit__(self):
        self.base = self.head
        self.room = sizeof(self.head)

    def write(self, data):
        """Copy some bytes behind those that are there."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len > self.room - self.used:
                self.make_room(view.len)
            _copy(self.base + self.used, <const char *>view.buf, view.len)
            self.used += view.len
        finally:
            PyBuffer_Release(&view)
        return view.len

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef flag zero
        cdef char *base = NULL
        cdef bint in_arena
        cdef shmpi_arena *a = <shmpi_arena *>arena()
        cdef Py_ssize_t room = self.used + more
        if self.used:  # written piece by piece: more follows
            room = max(2 * self.used, room + _SLACK)
        if a != NULL:
            base = <char *>shmpi_arena_take(a, room, &zero)
        in_arena = base != NULL
        if not in_arena:
            base = <char *>malloc(room)
        if base == NULL:
            raise MemoryError(f"shmnd.mpi: no memory for a pickle of {room} bytes")
        _copy(base, self.base, self.used)
        self.give_back()
        self.base = base
        self.room = room
        self.in_arena = in_arena
        return 0

    cdef void put(self, const char *data, Py_ssize_t n) noexcept:
        """Write some bytes for which there is room."""
        shmnd_copy_bytes(self.base + self.used, data, n)
        self.used += n

    cdef void give_back(self) noexcept:
        if self.in_arena:
            shmpi_arena_return(<shmpi_arena *>arena(), self.base)
        elif self.base != self.head:
            free(self.base)

    def __dealloc__(self):
        self.give_back()

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.base, self.used, 1, flags)


cdef object dump_large(object obj, int protocol):
    """Return the pickle of an object that is not small: bytes, or a PickleFile.

    `dumps` is faster for short pickles, by about a microsecond, and slower for large ones. So the
    length of the last pickle of an object's type decides.
    """
    cdef PickleFile file
    if PyBytes_CheckExact(obj) and protocol == _PROTOCOL:
        return dump_bytes(obj)
    cls = type(obj)
    if cls not in _large:
        made = _py_dumps(obj, protocol)
        if len(made) >= _LARGE and arena() != NULL:
            if len(_large) == _MOST_TYPES:
                _large.clear()
            _large.add(cls)
        return made
    file = PickleFile.__new__(PickleFile)
    Pickler(file, protocol).dump(obj)
    if file.used < _LARGE:
        _large.discard(cls)
    return file


cdef PickleFile dump_bytes(bytes obj):
    """Return the pickle of bytes, as the module writes it: in a frame if they are short enough."""
    cdef PickleFile file = PickleFile.__new__(PickleFile)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(obj)
    cdef bint wide = n > 0xFFFFFFFF
    cdef uint64_t size = n, frame = 5 + n + 2
    cdef uint32_t brief = <uint32_t>n
    file.make_room(2 + 9 + 9 + n + 2)
    file.put(b"\x80\x05", 2)
    if n < SHMPI_BODY_LEAST:
        file.put(b"\x95", 1)
        file.put(<char *>&frame, 8)
    file.put(b"\x8e" if wide else b"B", 1)
    file.put(<char *>&size if wide else <char *>&brief, 8 if wide else 4)
    _copy(file.base + file.used, PyBytes_AS_STRING(obj), n)
    file.used += n
    file.put(b"\x94.", 2)
    return file


# -- reading --

cdef class PickleParts:
    """A pickle without its large bodies, and those as objects, all of them memory of this rank."""

    cdef object load(self):
        if not self.bodies:
            return _py_loads(self.stream)
        if self.stream == _ONE_BODY:
            return self.bodies[0]
        return _py_loads(self.stream, buffers=self.bodies)


cdef PickleParts copy_parts(const void *pickle, Py_ssize_t n):
    """Copy a pickle out of memory of another rank, each large body into an object of its own."""
    cdef shmpi_body bodies[SHMPI_BODIES]
    cdef PickleParts parts = PickleParts.__new__(PickleParts)
    cdef const char *source = <const char *>pickle
    cdef int i, found = shmpi_find_bodies(<const unsigned char *>source, n, bodies)
    cdef Py_ssize_t rest = n, at = 0
    cdef char *to
    cdef bytes stream
    for i in range(found):
        rest -= bodies[i].at + bodies[i].bytes - bodies[i].head - 1
    stream = PyBytes_FromStringAndSize(NULL, rest)
    to = PyBytes_AS_STRING(stream)
    parts.bodies = []
    for i in range(found):
        _copy(to, source + at, bodies[i].head - at)
        to += bodies[i].head - at
        to[0] = <char>SHMPI_OP_NEXT_BUFFER
        to += 1
        parts.bodies.append(_body(source + bodies[i].at, bodies[i].bytes, bodies[i].array))
        at = bodies[i].at + bodies[i].bytes
    _copy(to, source + at, n - at)
    parts.stream = stream
    return parts


cdef object _body(const char *source, Py_ssize_t n, bint array):
    if array:
        made = PyByteArray_FromStringAndSize(NULL, n)
        _copy(PyByteArray_AS_STRING(made), source, n)
    else:
        made = PyBytes_FromStringAndSize(NULL, n)
        _copy(PyBytes_AS_STRING(made), source, n)
    return made
