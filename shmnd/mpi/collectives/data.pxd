# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.communicators.comm_state cimport CommState
from shmnd.mpi.collectives.plan cimport Plan, Side
from shmnd.mpi.point_to_point.calls cimport PointCalls


cdef class DataCalls(PointCalls):
    cdef int root(self, CommState c, given, str call) except -1000
    cdef Plan _barrier(self, str call)
    cdef Plan _bcast(self, buf, place, str call)
    cdef Plan _gather(self, bint vector, sendbuf, recvbuf, place, str call)
    cdef Plan _scatter(self, bint vector, sendbuf, recvbuf, place, str call)
    cdef Plan _allgather(self, bint vector, sendbuf, recvbuf, str call)
    cdef Plan _alltoall(self, str kind, sendbuf, recvbuf, str call)
    cdef int _own(
        self, Plan plan, Side out, Py_ssize_t i, Side into, Py_ssize_t j, str call
    ) except -1


cdef bint in_place(object given) noexcept
