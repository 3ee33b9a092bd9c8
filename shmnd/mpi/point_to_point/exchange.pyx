# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Bytes of any length between ranks of the job, for calls that move objects or make communicators.

All sends and receives of a call run together and have ended when it returns.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from shmnd.mpi.communicators.comm_state cimport (
    CommBase, CommState, check_context, kind_in, known, tag_of_call,
)
from shmnd.mpi.communicators.disputes cimport agree, send_call
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.point_to_point.left_requests cimport leave_request
from shmnd.mpi.transport.engine cimport (
    E, SHMPI_FAILED_PEER, SHMPI_NO_MEMORY, Wait, cancel, note, req_free, req_new, shmpi_call,
    shmpi_req, start_receive, start_send, shut, wait_end, wait_turn,
)
from shmnd.mpi.transport.outer_call cimport place_of

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import REMEDY_OF_MEMORY as _REMEDY


def next_tag(CommBase comm not None, call: str, int root=-1) -> int:
    """Return the tag of the next collective on a communicator, with its root if it has one.

    Raise the error of MPI where one of its ranks is known to have died.
    """
    cdef CommState state = comm.ob
    state.call = call
    if E.failures:
        check_context(state.context, comm)
    return tag_of_call(state.begin(kind_in(state, call), root))


def to_job(CommState state, int place) -> int:
    """Return the rank of the job at a place of the communicator (of the remote group, if inter)."""
    if not 0 <= place < state.peers:
        raise IndexError(f"shmnd.mpi: rank {place} of {state.title()}, which has {state.peers}")
    return state.to_job[place]


cdef shmpi_req *_begin(int peer, unsigned int context, int tag) except NULL:
    cdef shmpi_req *r = req_new()
    r.peer = peer
    r.context = context
    r.tag = tag
    return r


cdef str _at(unsigned int context):
    """Return the call of the program, for a message."""
    cdef CommState c = known(context)
    if c is None:
        return place_of(context, "a call", "a group")
    return place_of(context, c.call or "a call", c.title())


cdef int _raise_fault(int fault, int peer, unsigned int context, CommBase comm) except -1:
    at = _at(context)
    if fault == SHMPI_FAILED_PEER:
        mpi_error(comm, constants.ERR_PROC_FAILED, f"{at}: rank {peer} of the job has died")
    if fault == SHMPI_NO_MEMORY:
        mpi_error(
            comm, constants.ERR_NO_MEM,
            f"{at}: no memory for a message with rank {peer} of the job; {_REMEDY}",
        )
    mpi_error(
        comm, constants.ERR_INTERN,
        f"{at}: a message with rank {peer} of the job was lost (fault {fault})",
    )
    return 0


cdef int _wait(shmpi_req *r, unsigned int context, CommBase comm) except -1:
    cdef Wait wait = Wait(0, False)
    cdef CommState c = known(context)
    # A collective: its tag is a number. Those of agreements are negative, and counted apart.
    cdef bint counted = context % 4 == 1 and c is not None and r.tag >= 0
    cdef shmpi_call mine
    if counted:
        mine = c.call_of(r.tag)
    try:
        while not r.done:
            if E.failures or E.revocations:
                check_context(context, comm)
            if wait_turn(&wait):
                call = "an exchange" if c is None or c.call is None else c.call
                title = "" if c is None else c.title()
                note(1, r.peer, -1, call, title, context)
                if counted:
                    send_call(r.peer, mine)
            if wait.noted and counted:
                agree(c, mine, comm)
    finally:
        wait_end(&wait)
    return 0


def exchange(
    CommBase comm, context: int, tag: int, sends: list[tuple[int, bytes]], receives: list[int]
) -> list[bytes]:
    """Send bytes to ranks of the job and receive bytes from others; return those, in order.

    Raise the error of MPI where the communicator has a rank that died or is revoked, or a message
    cannot be read; the error handler of `comm` handles it first, where there is one.
    """
    cdef list results = []
    cdef shmpi_req *r
    cdef bytes data
    cdef list open_ = []
    cdef size_t each
    cdef Py_ssize_t at = 0
    if shut:
        check_context(context, comm)
    try:
        for peer in receives:
            r = _begin(peer, context, tag)
            r.grows = True
            start_receive(r)
            open_.append(<size_t>r)
        for peer, data in sends:
            r = _begin(peer, context, tag)
            r.buffer = PyBytes_AS_STRING(data)
            r.bytes = len(data)
            start_send(r)
            open_.append(<size_t>r)
        while at < len(open_):
            r = <shmpi_req *><size_t>open_[at]
            _wait(r, context, comm)
            at += 1
            fault = r.fault
            peer = r.peer
            if r.receives and not fault:
                results.append(PyBytes_FromStringAndSize(r.buffer, r.got))
            req_free(r)
            if fault:
                check_context(context, comm)
                _raise_fault(fault, peer, context, comm)
    finally:
        for each in open_[at:]:
            r = <shmpi_req *>each
            if r.receives:
                cancel(r)
            leave_request(r, sends)
    return results
