# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
from shmnd.mpi.buffers.plain cimport Plain
from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.objects.handle cimport State
from shmnd.mpi.point_to_point.operation cimport Point, SENT
from shmnd.mpi.point_to_point.status cimport Status


cdef int send_direct(
    CommBase comm, CommState c, Plain *given, int peer, int tag, str call) except -1
cdef int receive_direct(
    CommBase comm, CommState c, Plain *given, int peer, int tag, Status status,
    str call) except -1
cdef object receive_object(
    CommBase comm, CommState c, int peer, int tag, Status status, str call)
cdef bint receive_plain(Point op, buf) except -1
cdef bint end_plain(Point op, Status status) noexcept


cdef inline bint is_over(State ob) noexcept:
    """Return whether it is a send or a receive that has ended; with False `ready` decides."""
    if ob is SENT:
        return True
    return type(ob) is Point and (<Point>ob).req != NULL and (<Point>ob).req.done
