# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Blocking sends and receives of plain messages: no object is made for one.

The memory of the message is the caller's: it lives until the call returns, and beyond that where
the call ends by an exception while the message still moves.
"""

from shmnd.mpi.buffers.plain cimport memory_of
from shmnd.mpi.communicators.comm_state cimport set_status
from shmnd.mpi.point_to_point.operation cimport fault_class, leave_request
from shmnd.mpi.transport.engine cimport (
    E, SHMPI_FAILED_PEER, cancel, note, note_end, req_free, req_new, send_now, spin,
    shmpi_req, start_receive, start_send, stop_req, turn,
)

from shmnd.mpi import constants

cdef int ANY_SOURCE = constants.ANY_SOURCE


cdef int send_direct(
    CommBase comm, CommState c, Plain *given, int peer, int tag, str call
) except -1:
    """Send, and wait until the memory may be used again."""
    cdef shmpi_req *r
    if send_now(peer, c.context, tag, given.addr, given.nbytes):
        return 0
    r = _request(c, given, peer, tag)
    try:
        start_send(r)
    except BaseException:
        req_free(r)
        raise
    _wait(comm, c, r, given, call)
    try:
        if r.fault:
            comm.fail(r.fault, call, r, c)
    finally:
        req_free(r)
    return 0


cdef int receive_direct(
    CommBase comm, CommState c, Plain *given, int peer, int tag, Status status,
    str call
) except -1:
    """Receive a message."""
    cdef shmpi_req *r = _request(c, given, peer, tag)
    r.receives = True
    try:
        start_receive(r)
    except BaseException:
        req_free(r)
        raise
    _wait(comm, c, r, given, call)
    if status is None and not r.fault:
        req_free(r)
        return 0
    try:
        set_status(status, c, r)
        if r.fault:
            if status is not None:
                status.c_error = fault_class(r.fault)
            comm.fail(r.fault, call, r, c)
    finally:
        req_free(r)
    return 0


cdef inline shmpi_req *_request(CommState c, Plain *given, int peer, int tag) except NULL:
    cdef shmpi_req *r = req_new()
    r.peer = peer
    r.tag = tag
    r.context = c.context
    r.buffer = given.addr
    r.bytes = given.nbytes
    return r


cdef inline int _wait(
    CommBase comm, CommState c, shmpi_req *r, Plain *given, str call
) except -1:
    if r.done or spin(r):
        return 0
    return _wait_long(comm, c, r, given, call)


cdef int _wait_long(
    CommBase comm, CommState c, shmpi_req *r, Plain *given, str call
) except -1:
    """Wait after the polls of `spin` were in vain: publish what for, and sleep."""
    cdef unsigned int idle = E.awake_polls
    cdef bint any_rank = r.receives and r.peer == ANY_SOURCE
    try:
        note(1, r.peer, r.tag, call, comm.title(c))
        while not r.done:
            if any_rank and E.failures and r.posted and c.dead() > c.acknowledged:
                # The message may have been that of a rank that died.
                stop_req(r, SHMPI_FAILED_PEER)
                break
            turn(&idle)
    except BaseException:
        if r.receives:
            cancel(r)
        leave_request(r, memory_of(given))
        raise
    finally:
        note_end()
    return 0
