# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.transport.engine cimport shmpi_sched


cdef void tell_call(int peer, uint32_t context, uint64_t number, int root) noexcept
cdef int agree(
    CommState c, uint32_t context, uint64_t number, int root, CommBase comm
) except -1
cdef void tell_failure(CommState c, uint32_t context, uint64_t number) noexcept
cdef int raise_unequal(
    CommState c, shmpi_sched *s, uint64_t number, str call, CommBase comm
) except -1
