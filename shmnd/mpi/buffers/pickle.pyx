# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""How Python objects become messages: the module pickle, or functions of the program instead.

Protocol 5 leaves large buffers where they are: `dumps_oob` returns the pickle and the buffers that
are worth a message of their own, those of `THRESHOLD` bytes and more. Small plain objects are
pickled and unpickled without the module, to the same bytes and objects (`small_pickle.h`); messages
of large ones lie in memory that all ranks map (`large_pickle.pyx`).
"""

from collections.abc import Callable, Iterable
from typing import Any

from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from shmnd.mpi.buffers.buffer cimport as_buffer
from shmnd.mpi.buffers.large_pickle cimport PickleFile, PickleParts, copy_parts, dump_large
from shmnd.mpi.buffers.plain cimport Plain, plain

import os
from pickle import HIGHEST_PROTOCOL, PickleBuffer
from pickle import dumps as _py_dumps
from pickle import loads as _py_loads

from shmnd.mpi.buffers.buffer import buffer


cdef extern from "small_unpickle.h":
    int SHMPI_PICKLE_PROTOCOL
    PyObject *shmpi_small_dumps(object obj)
    PyObject *shmpi_small_loads(const void *pickle, Py_ssize_t size)


def _setting(name: str, default: int) -> int:
    """Return an integer of the environment, MPI4PY_PICKLE_<name>."""
    value = os.environ.get(f"MPI4PY_PICKLE_{name}", "")
    return int(value) if value else default


cdef class Pickle:
    """Pickle/unpickle Python objects."""

    def __cinit__(self, *args: Any, **kwargs: Any) -> None:
        Pickle.__init__(self)

    def __init__(
        self,
        dumps: Callable[..., bytes] | None = None,
        loads: Callable[[Any], Any] | None = None,
        protocol: int | None = None,
        threshold: int | None = None,
    ) -> None:
        self.plain = dumps is None or dumps is _py_dumps
        self.dump = _py_dumps if dumps is None else dumps
        self.load = _py_loads if loads is None else loads
        self.PROTOCOL = protocol
        self.THRESHOLD = threshold

    @property
    def PROTOCOL(self) -> int | None:
        """Protocol version."""
        return self.protocol

    @PROTOCOL.setter
    def PROTOCOL(self, protocol: int | None) -> None:
        if protocol is None and self.plain:
            protocol = _setting("PROTOCOL", HIGHEST_PROTOCOL)
        elif protocol is not None and protocol < 0:
            protocol = HIGHEST_PROTOCOL
        self.protocol = protocol
        self.small = self.plain and protocol == SHMPI_PICKLE_PROTOCOL

    @property
    def THRESHOLD(self) -> int:
        """Out-of-band threshold."""
        return self.threshold

    @THRESHOLD.setter
    def THRESHOLD(self, threshold: int | None) -> None:
        self.threshold = _setting("THRESHOLD", 1 << 18) if threshold is None else threshold

    cdef bytes small_bytes(self, object obj):
        """Return the pickle of a small plain object, None for the module pickle to write it."""
        cdef PyObject *made = shmpi_small_dumps(obj) if self.small else NULL
        return None if made == NULL else _owned(made)

    cdef object cdumps(self, object obj):
        made = self.small_bytes(obj)
        if made is not None:
            return made
        if self.protocol is None:
            return self.dump(obj)
        return self.dump(obj, self.protocol)

    cdef int message(self, object obj, Plain *into) except -1:
        """Find the bytes that an object is sent as; the caller has to `release` them."""
        made = self.small_bytes(obj)
        if made is None:
            made = dump_large(obj, self.protocol) if self.plain else self.cdumps(obj)
        if type(made) is PickleFile:
            into.addr = (<PickleFile>made).base
            into.nbytes = (<PickleFile>made).used
            into.held = False
            Py_INCREF(made)
            into.owner = <PyObject *>made
        else:
            plain(made if PyBytes_CheckExact(made) else bytes(made), True, into)
        return 0

    cdef object cloads(self, object data):
        if self.load is _py_loads and PyBytes_CheckExact(data):
            return self.load_memory(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        return self.load(data)

    cdef object load_memory(self, const void *data, Py_ssize_t size):
        cdef PyObject *made
        if self.load is not _py_loads:
            # A function of the program may keep what it is given; the memory ends with the call.
            return self.load(PyBytes_FromStringAndSize(<const char *>data, size))
        made = shmpi_small_loads(data, size)
        if made != NULL:
            return _owned(made)
        return _py_loads(PyMemoryView_FromMemory(<char *>data, size, PyBUF_READ))

    cdef object copy_of(self, const void *data, Py_ssize_t size):
        """Copy a pickle out of memory of another rank; `load_copy` loads it."""
        if self.load is not _py_loads:
            return PyBytes_FromStringAndSize(<const char *>data, size)
        return copy_parts(data, size)

    cdef object load_copy(self, object copy):
        if type(copy) is PickleParts:
            return (<PickleParts>copy).load()
        return self.load(copy)

    def dumps(self, obj: Any) -> bytes:
        """Serialize object to pickle data stream."""
        return self.cdumps(obj)

    def loads(self, data: Any) -> Any:
        """Deserialize object from pickle data stream."""
        return self.cloads(data)

    def dumps_oob(self, obj: Any) -> tuple[bytes, list[buffer]]:
        """Serialize object to pickle data stream and out-of-band buffers."""
        cdef list buffers = []
        cdef Py_ssize_t threshold = self.threshold
        if not self.plain:
            return (self.cdumps(obj), buffers)
        made = self.small_bytes(obj)
        if made is not None:
            return (made, buffers)

        def keep(pickled: PickleBuffer) -> bool:
            memory = as_buffer(pickled, True)
            if memory.view.len < threshold:
                return True
            buffers.append(memory)
            return False

        protocol = max(self.protocol, 5)
        return (_py_dumps(obj, protocol, buffer_callback=keep), buffers)

    def loads_oob(self, data: Any, buffers: Iterable[Any]) -> Any:
        """Deserialize object from pickle data stream and out-of-band buffers."""
        if self.load is not _py_loads:
            return self.cloads(data)
        return _py_loads(data, buffers=buffers)


cdef inline object _owned(PyObject *made):
    """Return an object whose reference the caller has."""
    obj = <object>made
    Py_DECREF(obj)
    return obj


cdef Pickle _pickle = Pickle()
pickle = _pickle


cdef int pickle_message(object obj, Plain *into) except -1:
    """Find the bytes that an object is sent as, by `MPI.pickle`; the caller releases them."""
    return _pickle.message(obj, into)


cdef object pickle_load(const void *data, Py_ssize_t size):
    """Return the object of memory that lives as long as this call, by `MPI.pickle`."""
    return _pickle.load_memory(data, size)


cdef object pickle_copy(const void *data, Py_ssize_t size):
    """Copy a message out of memory of another rank, for `pickle_load_copy`."""
    return _pickle.copy_of(data, size)


cdef object pickle_load_copy(object copy):
    """Return the object of a message that was copied, by `MPI.pickle`."""
    return _pickle.load_copy(copy)
