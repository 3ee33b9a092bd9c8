# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Usual ranks and tags without a call, and lists of statuses.

CommBase takes all other ranks and tags, and raises the errors.
"""

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
from shmnd.mpi.point_to_point.status cimport Status
from shmnd.mpi.transport.engine cimport E, SHMPI_ANY

cdef extern from "objects/small_int.h":
    bint shmpi_small_int(object given, int *value)


cdef inline CommState usable_state(CommBase comm, str call):
    if comm.ob is not None and not E.revocations:
        return <CommState>comm.ob
    return comm.state(call)


cdef inline int rank_to(CommBase comm, CommState c, dest, str call) except -1000:
    cdef int place
    if shmpi_small_int(dest, &place) and 0 <= place < c.peers:
        return c.to_job[place]
    return comm.to(c, dest, call, "dest")


cdef inline int rank_from(CommBase comm, CommState c, source, str call) except -1000:
    cdef int place
    if shmpi_small_int(source, &place) and 0 <= place < c.peers:
        return c.to_job[place]
    return comm.source(c, source, call)


cdef inline int tag_of(CommBase comm, tag, bint any_allowed, str call) except -1000:
    cdef int number
    if shmpi_small_int(tag, &number) and (number >= 0 or any_allowed and number == SHMPI_ANY):
        return number
    return comm.tag(tag, any_allowed, call)


cdef inline object fitting(object statuses, Py_ssize_t count):
    """Return the statuses to fill: a list grows as far as needed."""
    if statuses is None:
        return ()
    if isinstance(statuses, list):
        while len(statuses) < count:
            statuses.append(Status())
    return statuses


cdef inline Status status_at(object statuses, Py_ssize_t i):
    return statuses[i] if i < len(statuses) else None
