# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.handle cimport Handle
from shmnd.mpi.operation cimport Operation
from shmnd.mpi.status cimport Status


cdef class Request(Handle):
    cdef Operation operation(self)
    cdef object finish(self, Status status)


cdef class Prequest(Request):
    pass


cdef class Grequest(Request):
    pass


cdef Request request_of(Operation op)
cdef Prequest prequest_of(Operation op)
cdef int wait_op(Operation op) except -1
