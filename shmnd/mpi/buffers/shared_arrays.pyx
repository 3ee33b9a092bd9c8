# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=False
"""Arrays of numpy, and the memory of `Alloc_mem`, in memory that all ranks map.

Messages between such arrays are copied without the kernel. numpy is not imported for that: its
handler is set when the program has imported it, or does.

A forked child process would share these arrays with its parent. So it copies them first, and
the parent waits for that; both have arrays of their own afterwards, as of private memory.
"""

import importlib.util
import os
import select
import sys

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.pycapsule cimport (
    PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New,
)
from libc.stdint cimport uint8_t, uint64_t

from shmnd.mpi.transport.engine cimport arena

from shmnd.mpi.transport import hooks

cdef extern from "stdbool.h":
    ctypedef unsigned char flag "bool"

cdef extern from "buffers/array_memory.h" nogil:
    ctypedef struct nd_allocator:
        pass
    ctypedef struct nd_handler:
        uint8_t version
        nd_allocator allocator
    struct shmpi_arena:
        char *base
        uint64_t fresh
    shmpi_arena *nd_arena
    nd_allocator nd_usual
    nd_handler nd_in_arena
    void *shmpi_arena_take(shmpi_arena *a, uint64_t n, flag *zero)
    void shmpi_arena_return(shmpi_arena *a, void *p)
    flag shmpi_arena_unshare(shmpi_arena *a)
    void *memset(void *p, int value, size_t n)

# The places of two functions in the table of numpy's C interface, the same in all of its versions.
cdef enum:
    SET_HANDLER = 304
    GET_HANDLER = 305

_FORK_SECONDS = 60.0
_fork = None  # the pipe by which a forked child says that its arrays are its own


# -- numpy --

class _WhenNumpyComes:
    """Sets the handler after the import of numpy; it finds nothing itself.

    A finder needs no base class, and the module of that one takes a tenth of our own import.
    """

    def __init__(self) -> None:
        self._asks = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != "numpy" or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: object) -> None:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            execute(module)
            _set_handler()

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader that cannot be changed: arrays stay where numpy puts them
        return spec


def begin() -> None:
    """Have arrays of a middle size in the arena of this rank, if it has one."""
    global nd_arena
    nd_arena = <shmpi_arena *>arena()
    if nd_arena == NULL:
        return
    hooks.provide(allocate=_allocate)
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child
    )
    if "numpy" in sys.modules:
        _set_handler()
    else:
        sys.meta_path.insert(0, _WhenNumpyComes())


def _set_handler() -> None:
    """Have numpy ask us for the memory of arrays, in this thread and its tasks.

    It leaves numpy as it is where the program has set a handler of its own, or where the
    handlers of this numpy are of another version.
    """
    cdef void **table
    cdef nd_handler *usual
    try:
        from numpy._core import _multiarray_umath as core
    except ImportError:
        from numpy.core import _multiarray_umath as core
    capsule = core._ARRAY_API
    table = <void **>PyCapsule_GetPointer(capsule, NULL)
    current = (<object (*)()>table[GET_HANDLER])()
    if not PyCapsule_IsValid(current, "mem_handler"):
        return
    usual = <nd_handler *>PyCapsule_GetPointer(current, "mem_handler")
    if usual.version != 1 or core.get_handler_name() != "default_allocator":
        return
    _copy_allocator(usual)
    ours = PyCapsule_New(&nd_in_arena, "mem_handler", NULL)
    (<object (*)(object)>table[SET_HANDLER])(ours)


cdef void _copy_allocator(nd_handler *usual) noexcept:
    global nd_usual
    nd_usual = usual.allocator


# -- Alloc_mem --

cdef class _Block:
    """A block of the arena, zeroed."""

    cdef void *base
    cdef Py_ssize_t nbytes

    def __cinit__(self, Py_ssize_t nbytes):
        cdef flag zero = False
        self.base = shmpi_arena_take(nd_arena, nbytes, &zero)
        self.nbytes = nbytes
        if self.base != NULL and not zero:
            memset(self.base, 0, nbytes)

    def __dealloc__(self):
        if self.base != NULL:
            shmpi_arena_return(nd_arena, self.base)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.base, self.nbytes, 0, flags)


def _allocate(nbytes: int) -> bytearray | memoryview:
    cdef _Block block = _Block(nbytes)
    return bytearray(nbytes) if block.base == NULL else memoryview(block)


# -- forked children --

def _before_fork() -> None:
    global _fork
    _fork = None
    if nd_arena.fresh:
        _fork = os.pipe()


def _after_fork() -> None:
    """Wait until the child has copied the arrays, or has died."""
    global _fork
    if _fork is None:
        return
    (reads, writes), _fork = _fork, None
    os.close(writes)
    poll = select.poll()
    poll.register(reads, select.POLLIN)
    poll.poll(_FORK_SECONDS * 1000)
    os.close(reads)


def _in_child() -> None:
    global _fork
    if not shmpi_arena_unshare(nd_arena):
        sys.stderr.write(
            "shmnd.mpi: a forked child has no memory to copy the arrays of the rank, and shares "
            "some with it; `shmnd mpiexec --private-arrays` shares none\n"
        )
    if _fork is not None:
        for descriptor in _fork:
            os.close(descriptor)
        _fork = None
