# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Memory of this process: callers' buffers, held while they are registered, and mapped ranges."""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport uint64_t

from shmnd.ring cimport c

from shmnd.common.objects import holds_objects


@cython.no_gc_clear  # its end releases the buffer, which may live on
cdef class HeldBuffer:
    """A caller's buffer, held for as long as it is registered."""

    def __cinit__(self, buffer) -> None:
        try:
            PyObject_GetBuffer(buffer, &self._view, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT)
        except ValueError:  # numpy: the items, such as dates, have no format
            PyObject_GetBuffer(buffer, &self._view, PyBUF_ANY_CONTIGUOUS)
        self._owner = buffer
        self.held = True

    @property
    def address(self) -> int:
        """Its address."""
        return <size_t>self._view.buf

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""
        return self._view.len

    @property
    def readonly(self) -> bool:
        """Whether it is read-only."""
        return bool(self._view.readonly)

    def holds_objects(self) -> bool:
        """Return whether its items are references to Python objects."""
        if self._view.format != NULL:
            return holds_objects(self._view.format.decode(), self._owner)
        return bool(getattr(getattr(self._owner, "dtype", None), "hasobject", False))

    def release(self) -> None:
        """Release it, unless it is registered; a second call has no effect."""
        if self.held and not self.registered:
            self.held = False
            PyBuffer_Release(&self._view)
            self._owner = None

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self._view)


def is_mapped(address: int, nbytes: int) -> bool:
    """Return whether this range is mapped in this process, by the kernel's page tables."""
    cdef object pages = bytearray(65536)
    cdef unsigned char *each = pages
    cdef uint64_t at = <uint64_t>address & ~<uint64_t>4095
    cdef uint64_t end = <uint64_t>address + <uint64_t>nbytes
    cdef uint64_t piece
    if end < at or end >= <uint64_t>1 << 63:
        return False
    while at < end:
        piece = min(end - at, <uint64_t>65536 * 4096)
        if c.mincore(<void *><size_t>at, <size_t>piece, each) != 0:
            return False
        at += piece
    return True


def copies_within_work() -> bool:
    """Return whether process_vm_readv works within this process; a seccomp filter can forbid it."""
    cdef unsigned char from_ = 1, to = 0
    return c.shmnd_vm_copy_here(&to, &from_, 1) == 0 and to == 1
