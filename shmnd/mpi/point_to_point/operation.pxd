# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from cpython.object cimport PyObject

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.transport.engine cimport shmpi_req
from shmnd.mpi.objects.handle cimport State
from shmnd.mpi.buffers.plain cimport Plain
from shmnd.mpi.buffers.spec cimport Spec
from shmnd.mpi.point_to_point.status cimport Status


cdef class Operation(State):
    cdef public bint active, persistent
    cdef bint requested  # the program has a request of it
    cdef object result

    cdef bint ready(self) except -1
    cdef int check_pending(self, Status status) except -1
    cdef int begin(self) except -1
    cdef object end(self, Status status)
    # The status of an operation that is ready and does not end yet.
    cdef int peek(self, Status status) except -1
    cdef int cancel(self) except -1
    # The program does not wait for its end.
    cdef int leave(self) except -1
    # Publish that the program waits for it, as one of `count` operations.
    cdef int publish(self, unsigned int count) except -1
    # The flags of its note: 0, or SHMPI_SCHEDULE.
    cdef unsigned int flags(self) noexcept
    # The rank of the job that ends it, -1 if that is not known.
    cdef int awaited(self) except? -2
    cdef void recycle(self) noexcept


cdef class Point(Operation):
    cdef shmpi_req *req
    cdef CommBase comm
    cdef CommState state
    cdef Plain given            # the message, if `is_plain`; else
    cdef Spec spec              # the message; else it is an object
    cdef PyObject *used         # `spec` under way: a reference that no collection of garbage sees
    cdef object keep            # the pickled object, or a copy of the message
    cdef char *staged
    cdef Py_ssize_t length
    cdef str call
    cdef unsigned int context
    cdef bint receives, sync, is_plain, is_object, buffered, doubtful
    cdef int peer, tag

    cdef int take(self, object msg) except -1
    cdef int take_object(self, object obj) except -1
    cdef int stage(self) except -1
    cdef int send_copy(self) except -1
    cdef char *_address(self) noexcept
    cdef object _memory(self)
    cdef void _end_use(self) noexcept
    cdef void _drop_message(self) noexcept
    cdef int _buffer(self) except -1
    cdef int _post(self) except -1
    cdef int fill(self) except -1


cdef Operation SENT


cdef class Ended(Operation):
    cdef bint of_null


cdef Point point(CommBase comm, CommState c, str call, bint receives, int peer, int tag)
cdef object unpickled(CommBase comm, CommState c, shmpi_req *r, str call)
cdef int fault_class(int fault) except -1
