# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.buffers.plain cimport Plain
from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.point_to_point.status cimport Status


cdef int send_direct(
    CommBase comm, CommState c, Plain *given, int peer, int tag, str call) except -1
cdef int receive_direct(
    CommBase comm, CommState c, Plain *given, int peer, int tag, Status status,
    str call) except -1
cdef object receive_object(
    CommBase comm, CommState c, int peer, int tag, Status status, str call)
