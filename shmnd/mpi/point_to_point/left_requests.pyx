# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Requests that continue when nothing in the program refers to them any more."""

cimport cython
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from shmnd.mpi.buffers.spec cimport Spec
from shmnd.mpi.datatypes.type_state cimport TypeState
from shmnd.mpi.transport.engine cimport hold, let_go, req_free, shmpi_req


@cython.final
cdef class _Left:
    """A request that continues, and that nothing in the program refers to, with its memory."""

    cdef shmpi_req *req
    cdef object memory

    def ended(self) -> None:
        """Free the request, which is done."""
        if self.req.owns_buffer and isinstance(self.memory, Spec):
            unpack(self.req, self.memory)
        req_free(self.req)


@cython.final
cdef class _Buffered:
    """A send in buffered mode, which takes room of an attached buffer until it has ended."""

    cdef shmpi_req *req
    cdef object buffering
    cdef Py_ssize_t nbytes

    def ended(self) -> None:
        """Free the request, which is done, and return the room."""
        req_free(self.req)
        self.buffering.give_back(self.nbytes)


cdef int leave_buffered(shmpi_req *r, object buffering) except -1:
    """Leave a send that is to begin, with a copy of its bytes, to the engine."""
    cdef char *copy = <char *>malloc(r.bytes if r.bytes else 1)
    cdef _Buffered left = _Buffered.__new__(_Buffered)
    if copy == NULL:
        buffering.give_back(r.bytes)
        req_free(r)
        raise MemoryError("shmnd.mpi: no memory to buffer a message")
    memcpy(copy, r.buffer, r.bytes)
    r.buffer = copy
    r.owns_buffer = True
    left.req = r
    left.buffering = buffering
    left.nbytes = <Py_ssize_t>r.bytes
    hold(r, left)
    let_go(r)
    return 0


cdef int unpack(shmpi_req *r, Spec spec) except -1:
    """Unpack a message that was received for a type with gaps."""
    if r.receives and not (r.fault or r.cancelled):
        (<TypeState>spec.type).unpack_bytes(r.buffer, r.got, spec.addr)
    return 0


cdef int leave_request(shmpi_req *r, object memory) except -1:
    """Leave a request to the engine, and keep the memory that it uses until it is done.

    The end of the program waits for it, unless it is a receive that is not matched.
    """
    cdef _Left left = _Left.__new__(_Left)
    left.req = r
    left.memory = memory
    if r.done:
        left.ended()
        return 0
    hold(r, left)
    if not (r.receives and r.posted):
        let_go(r)
    return 0
