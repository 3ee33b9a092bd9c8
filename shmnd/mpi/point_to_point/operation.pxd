# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.transport.engine cimport shmpi_req
from shmnd.mpi.objects.handle cimport State
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
    cdef int peek(self, Status status) except -1
    cdef int cancel(self) except -1
    cdef int leave(self) except -1
    cdef int publish(self, unsigned int count) except -1


cdef class Point(Operation):
    cdef shmpi_req *req
    cdef CommBase comm
    cdef CommState state
    cdef Spec spec
    cdef object keep
    cdef char *staged
    cdef Py_ssize_t length
    cdef str call
    cdef unsigned int context
    cdef bint receives, sync, is_object, buffered, doubtful
    cdef int peer, tag

    cdef int stage(self) except -1
    cdef int _buffer(self) except -1
    cdef object _load(self, shmpi_req *r)
    cdef int fill(self) except -1


cdef class Ended(Operation):
    cdef bint of_null


cdef int flatten(Spec spec, bint sends, char **address, Py_ssize_t *length, char **staged) except -1
cdef Point point(CommBase comm, CommState c, str call, bint receives, int peer, int tag)
cdef int fault_class(int fault) except -1
cdef int leave_request(shmpi_req *r, object memory) except -1
