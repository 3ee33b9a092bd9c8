# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.objects.handle cimport BareHandle
from shmnd.mpi.point_to_point.operation cimport Operation
from shmnd.mpi.point_to_point.status cimport Status


cdef class Request(BareHandle):
    cdef Operation operation(self)
    cdef object finish(self, Status status)


cdef Request request_of(Operation op)
