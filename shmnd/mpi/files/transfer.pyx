# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Moving bytes between the memory of the program and a view of a file."""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR
from libc.stdlib cimport free

from shmnd.mpi.buffers.spec cimport Spec, spec_simple
from shmnd.mpi.buffers.staging cimport flatten
from shmnd.mpi.communicators.comm_state cimport empty_status
from shmnd.mpi.files.view cimport (
    MPI_VIEW_DONE, MPI_VIEW_END, MPI_VIEW_MORE, View, int64_t, mpi_view_lock, mpi_view_move,
)
from shmnd.mpi.point_to_point.operation cimport Operation
from shmnd.mpi.point_to_point.request cimport Request, request_of
from shmnd.mpi.point_to_point.status cimport Status

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException

cdef extern from "fcntl.h":
    short F_RDLCK, F_WRLCK, F_UNLCK


cdef class Transfer:
    """One read or write of a view, checked when it is made: `buf` is a message as in a send."""

    cdef readonly Py_ssize_t etypes     # how many the message has room for
    cdef Spec spec
    cdef View view
    cdef bint writes
    cdef str call
    cdef char *address
    cdef char *staged                   # packed bytes of a type with gaps
    cdef Py_ssize_t nbytes

    def __init__(self, buf: object, view: View, writes: bool, call: str) -> None:
        self.spec = spec_simple(buf, writes, 0, 0, f"File.{call}")
        self.view = view
        self.writes = writes
        self.call = call
        flatten(self.spec, writes, &self.address, &self.nbytes, &self.staged)
        if self.nbytes % self.view.etype.size:
            raise MPIException(
                constants.ERR_TYPE,
                f"File.{call}: {self.nbytes} bytes; expected a multiple of the "
                f"{self.view.etype.size} of an etype of the view (Set_view)",
            )
        self.etypes = self.nbytes // self.view.etype.size

    def __dealloc__(self) -> None:
        free(self.staged)

    def run(self, descriptor: int, offset: int, atomic: bool) -> int:
        """Move the bytes at an offset of the view, and return how many.

        These are fewer than asked for where the file ends. With `atomic` no other rank whose calls
        are atomic sees or writes a part of them meanwhile.
        """
        cdef int64_t first = 0, length = 0
        first_place = self.view.place(offset, self.call)
        cdef Py_ssize_t moved, at = offset * self.view.etype.size
        self.view.check(at, self.nbytes, self.call)
        if not (atomic and self.nbytes):
            moved = self._move(descriptor, at)
        else:
            first = first_place - self.view.filetype.true_extent
            first = max(first, 0)
            length = (self.nbytes // self.view.filetype.size + 2) * self.view.filetype.extent
            length += 2 * self.view.filetype.true_extent
            self._lock(descriptor, first, length, F_WRLCK if self.writes else F_RDLCK)
            try:
                moved = self._move(descriptor, at)
            finally:
                self._lock(descriptor, first, length, F_UNLCK)
        if not self.writes and self.staged != NULL:
            self.spec.type.unpack_bytes(self.staged, moved, self.spec.addr)
        return moved

    cdef Py_ssize_t _move(self, int descriptor, Py_ssize_t at) except -1:
        cdef size_t moved = 0
        cdef int why = MPI_VIEW_MORE
        while why == MPI_VIEW_MORE:
            with nogil:
                why = mpi_view_move(
                    &self.view.shown, descriptor, self.address + moved, at + moved,
                    self.nbytes - moved, self.writes, &moved)
            PyErr_CheckSignals()
        if why not in (MPI_VIEW_DONE, MPI_VIEW_END):
            self._fail(why, f"after {moved} of {self.nbytes} bytes")
        return moved

    cdef int _lock(self, int descriptor, int64_t first, int64_t length, short kind) except -1:
        cdef int why = EINTR
        while why == EINTR:
            with nogil:
                why = mpi_view_lock(descriptor, first, length, kind)
            if why == EINTR and kind != F_UNLCK:
                PyErr_CheckSignals()
        if why:
            self._fail(why, "the part of the file cannot be locked, which atomic calls need")
        return 0

    def _fail(self, why, text):
        raise OSError(why, f"{os.strerror(why)}; {text}")


cdef class _Moved(Operation):
    """A read or write that ended when it was called; its status has the bytes."""

    cdef Py_ssize_t nbytes

    cdef object end(self, Status status):
        self.active = False
        fill(status, self.nbytes)
        return None

    cdef int peek(self, Status status) except -1:
        fill(status, self.nbytes)
        return 0


def fill(Status status, nbytes: int) -> None:
    """Enter so many bytes in a status, if there is one."""
    empty_status(status)
    if status is not None:
        status.c_nbytes = nbytes


def request_of_bytes(nbytes: int) -> Request:
    """Return the request of a read or write that has moved so many bytes."""
    cdef _Moved op = _Moved.__new__(_Moved)
    op.active = True
    op.nbytes = nbytes
    return request_of(op)
