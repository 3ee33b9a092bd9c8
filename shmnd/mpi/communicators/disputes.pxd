# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.transport.engine cimport shmpi_call, shmpi_sched


cdef void send_call(int peer, shmpi_call mine) noexcept
cdef int agree(CommState c, shmpi_call mine, CommBase comm) except -1
cdef void report_failure(CommState c, shmpi_call mine) noexcept
cdef int raise_unequal(
    CommState c, shmpi_sched *s, shmpi_call mine, str call, CommBase comm
) except -1
