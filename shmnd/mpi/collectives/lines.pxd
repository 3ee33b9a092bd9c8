# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from shmnd.mpi.collectives.op cimport mpi_kernel
from shmnd.mpi.communicators.comm_state cimport CommBase, CommState

cdef extern from "collectives/lines.h" nogil:
    enum:
        SHMPI_LINE_MOST     # bytes of a member's part of a small collective
        SHMPI_LINE_BARRIER
        SHMPI_LINE_BCAST
        SHMPI_LINE_REDUCE
        SHMPI_LINE_ALLREDUCE
        SHMPI_LINE_GATHER
        SHMPI_LINE_ALLGATHER

cdef int lines_barrier(CommBase comm, CommState c, str call, uint32_t kind) except -1
cdef int lines_bcast(CommBase comm, CommState c, char *data, Py_ssize_t n, int root) except -1
cdef int lines_reduce(
    CommBase comm, CommState c, const char *given, char *got, Py_ssize_t n, Py_ssize_t items,
    mpi_kernel kernel, int root, str call) except -1
cdef int lines_gather(
    CommBase comm, CommState c, const char *given, char **got, Py_ssize_t n, int root, str call
) except -1
cdef uint64_t lines_pass(CommState c) noexcept
cdef int lines_check(
    CommBase comm, CommState c, uint64_t k, Py_ssize_t own, str call) except -1

cdef bint plain_barrier(CommBase comm) except -1
cdef bint barrier_as(CommBase comm, str call) except -1
cdef bint plain_bcast(CommBase comm, object buf, object place) except -1
cdef bint plain_reduce(
    CommBase comm, object sendbuf, object recvbuf, object op, object place, str call) except -1
cdef bint plain_allgather(CommBase comm, object sendbuf, object recvbuf) except -1
