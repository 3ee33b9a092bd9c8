# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Usual arguments without a call; CommBase takes all others, and raises the errors."""

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState
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
