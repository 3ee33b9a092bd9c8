# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Sends and receives of plain messages and of objects, without the steps of other messages.

No operation is made for blocking ones. The memory of the message is the caller's: it lives until
the call returns, and beyond that where the call ends by an exception while the message still moves.
A receive with a request has an operation, which is made, and ends, in one step.
"""

from shmnd.mpi.buffers.plain cimport memory_of, plain, release
from shmnd.mpi.communicators.comm_state cimport set_status, status_of
from shmnd.mpi.point_to_point.left_requests cimport leave_request
from shmnd.mpi.point_to_point.operation cimport fault_class, unpickled
from shmnd.mpi.transport.engine cimport (
    E, SHMPI_FAILED_PEER, cancel, note, note_end, req_free, req_new, shmpi_came,
    shmpi_receive_now, shmpi_req, spin, start_receive, start_send, stop_req, turn,
)

from shmnd.mpi import constants

cdef int ANY_SOURCE = constants.ANY_SOURCE
cdef int PROC_NULL = constants.PROC_NULL


cdef int send_direct(
    CommBase comm, CommState c, Plain *given, int peer, int tag, str call
) except -1:
    """Send what `send_now` did not, and wait until the memory may be used again."""
    cdef shmpi_req *r = _request(c, peer, tag)
    r.buffer = given.addr
    r.bytes = given.nbytes
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
    cdef shmpi_came came
    cdef shmpi_req *r
    if shmpi_receive_now(E, peer, c.context, tag, given.addr, given.nbytes, &came):
        status_of(status, c, peer, came.tag, came.bytes)
        return 0
    r = _request(c, peer, tag)
    r.buffer = given.addr
    r.bytes = given.nbytes
    _receive(comm, c, r, given, call)
    try:
        _report(comm, c, r, status, call)
    finally:
        req_free(r)
    return 0


cdef object receive_object(
    CommBase comm, CommState c, int peer, int tag, Status status, str call
):
    """Receive a message, and return the object in it."""
    cdef shmpi_req *r = _request(c, peer, tag)
    r.grows = r.borrows = True
    _receive(comm, c, r, NULL, call)
    try:
        _report(comm, c, r, status, call)
        return unpickled(comm, c, r, call)
    finally:
        req_free(r)


cdef inline shmpi_req *_request(CommState c, int peer, int tag) except NULL:
    cdef shmpi_req *r = req_new()
    r.peer = peer
    r.tag = tag
    r.context = c.context
    return r


cdef int _receive(CommBase comm, CommState c, shmpi_req *r, Plain *given, str call) except -1:
    """Start a receive, and wait for its end. The request is the caller's unless this raises."""
    r.receives = True
    try:
        start_receive(r)
    except BaseException:
        req_free(r)
        raise
    return _wait(comm, c, r, given, call)


cdef int _report(CommBase comm, CommState c, shmpi_req *r, Status status, str call) except -1:
    """Fill the status of a receive that has ended; raise its error."""
    set_status(status, c, r)
    if r.fault:
        if status is not None:
            status.c_error = fault_class(r.fault)
        comm.fail(r.fault, call, r, c)
    return 0


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
        note(1, r.peer, r.tag, call, c.title(), c.context)
        while not r.done:
            if any_rank and E.failures and r.posted and c.dead() > c.acknowledged:
                # The message may have been that of a rank that died.
                stop_req(r, SHMPI_FAILED_PEER)
                break
            turn(&idle)
    except BaseException:
        if r.receives:
            cancel(r)
        leave_request(r, None if given == NULL else memory_of(given))
        raise
    finally:
        note_end()
    return 0


# -- with a request --

cdef bint receive_plain(Point op, buf) except -1:
    """Start to receive a plain message. False: it is another, or wrong, and nothing has begun."""
    cdef shmpi_req *r
    if not plain(buf, False, &op.given):
        return False
    # The memory is the operation's from here on, also where no request can be had.
    op.is_plain = True
    op.length = op.given.nbytes
    op.active = True
    op.req = r = req_new()
    r.peer = op.peer
    r.tag = op.tag
    r.context = op.context
    r.receives = True
    r.buffer = op.given.addr
    r.bytes = op.length
    start_receive(r)
    return True


cdef bint end_plain(Point op, Status status) noexcept:
    """End an operation with a plain message that is done without a fault. False: it is another."""
    cdef shmpi_req *r = op.req
    if r == NULL or not r.done or r.fault or not (op.active and op.is_plain) or op.persistent:
        return False
    op.active = False
    set_status(status, op.state, r)
    req_free(r)
    op.req = NULL
    op.is_plain = False
    release(&op.given)
    return True
