# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.collectives.data cimport DataCalls
from shmnd.mpi.collectives.plan cimport Plan, Side


cdef class ReduceCalls(DataCalls):
    cdef Plan _reduce(self, sendbuf, recvbuf, op, place, str call)
    cdef Plan _allreduce(self, sendbuf, recvbuf, op, str call)
    cdef Plan _reduce_scatter_block(self, sendbuf, recvbuf, op, str call)
    cdef Plan _reduce_scatter(self, sendbuf, recvbuf, recvcounts, op, str call)
    cdef Plan _scan(self, sendbuf, recvbuf, op, bint exclusive, str call)
