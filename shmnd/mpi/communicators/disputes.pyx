# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Ranks that do not agree on a collective: on the call, its root, or numbers of bytes.

The engine compares what it sees (`disputes.h`); these are the errors. A rank that raises one tells
all members: some may wait for a message that no rank sends.
"""

from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.transport.engine cimport (
    E, shmpi_call, shmpi_engine, shmpi_unequal, uint64_t,
)
from shmnd.mpi.transport.outer_call cimport place_of

from shmnd.mpi import constants
from shmnd.mpi.collectives.names import NAMES as _NAMES

cdef extern from "transport/collectives/calls.h" nogil:
    enum:
        SHMPI_CALL_BITS

    void shmpi_send_call(shmpi_engine *e, int peer, shmpi_call mine)

cdef extern from "communicators/disputes.h" nogil:
    struct shmpi_dispute:
        shmpi_call call
        # Named as in the header, where `with` is a name like others.
        int peer "with"
        uint64_t came, expected

    int shmpi_find_other_call(shmpi_engine *e, shmpi_call mine, shmpi_call *theirs)
    void shmpi_send_dispute(shmpi_engine *e, int peer, const shmpi_dispute *d)
    int shmpi_find_dispute(const shmpi_engine *e, shmpi_call mine, shmpi_dispute *found)

cdef int _MASK = (1 << SHMPI_CALL_BITS) - 1
cdef tuple _CALLS = _NAMES + _NAMES[:1] * (1 + _MASK - len(_NAMES))
_SAME_CALLS = "all ranks begin the same collectives in the same order"
_SAME_BYTES = "counts, types and roots of all ranks have to agree"


cdef void send_call(int peer, shmpi_call mine) noexcept:
    """Send a rank the collective in which this one waits for it."""
    if peer >= 0 and peer != E.rank:
        shmpi_send_call(E, peer, mine)


cdef void _send_to_all(CommState c, shmpi_dispute *d) noexcept:
    cdef int i
    if not d.call.number:
        return
    for i in range(c.size):
        if c.own[i] != E.rank:
            shmpi_send_dispute(E, c.own[i], d)
    if c.inter:
        for i in range(c.peers):
            shmpi_send_dispute(E, c.to_job[i], d)


cdef void report_failure(CommState c, shmpi_call mine) noexcept:
    """Report to all members that a collective failed here: calls of two ranks disagree."""
    cdef shmpi_dispute d = shmpi_dispute(mine, -1, 0, 0)
    _send_to_all(c, &d)


cdef int agree(CommState c, shmpi_call mine, CommBase comm) except -1:
    """Raise the error of a collective in whose place another rank is known to call another, or the
    same with another root, or that is known to have failed at another rank."""
    cdef shmpi_call theirs
    cdef int peer = shmpi_find_other_call(E, mine, &theirs)
    if peer < 0:
        return _check_disputes(c, mine, comm) if E.disputes else 0
    report_failure(c, mine)
    at = f"{_at(c, mine.number)}: rank {c.from_job[peer]}"
    if mine.number == theirs.number:
        mpi_error(
            comm, constants.ERR_ROOT,
            f"{at} names the root {theirs.root}, and this rank the root {mine.root}; all ranks "
            "name the same one",
        )
    mpi_error(
        comm, constants.ERR_TRUNCATE,
        f"{at} is in another collective, {_CALLS[theirs.number & _MASK]}; {_SAME_CALLS}",
    )
    return 0


cdef str _at(CommState c, uint64_t number):
    return place_of(c.context, _CALLS[number & _MASK], c.title())


cdef int _check_disputes(CommState c, shmpi_call mine, CommBase comm) except -1:
    cdef shmpi_dispute d
    cdef int peer = shmpi_find_dispute(E, mine, &d)
    if peer < 0:
        return 0
    at = f"{_at(c, mine.number)}: it failed at rank {c.from_job[peer]}"
    if not 0 <= d.peer < E.size:
        mpi_error(
            comm, constants.ERR_TRUNCATE,
            f"{at}, where two ranks disagree; {_SAME_CALLS}, and name the same roots",
        )
    mpi_error(
        comm, constants.ERR_TRUNCATE,
        f"{at}, which expects {d.expected} bytes, from rank {c.from_job[d.peer]}, which sends "
        f"{d.came}; {_SAME_BYTES}",
    )
    return 0


cdef int raise_unequal(
    CommState c, shmpi_sched *s, shmpi_call mine, str call, CommBase comm
) except -1:
    """Raise the error of a collective that received another number of bytes than it expects."""
    cdef shmpi_unequal u = s.unequal
    cdef shmpi_dispute d = shmpi_dispute(mine, u.peer, u.came, u.expected)
    _send_to_all(c, &d)
    peer = c.from_job[u.peer]
    what = (
        f"rank {peer} takes part with {u.came} bytes, and this rank with {u.expected}" if u.in_all
        else f"rank {peer} sends {u.came} bytes, where this rank expects {u.expected}"
    )
    mpi_error(
        comm, constants.ERR_TRUNCATE,
        f"{place_of(c.context, call, c.title())}: {what}; {_SAME_BYTES}",
    )
    return 0
