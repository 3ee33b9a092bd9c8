# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The end of this rank: it stays for what its program began and did not wait for."""

import atexit
import sys

from libc.stdint cimport uint32_t

from shmnd.mpi.transport import hooks

from shmnd.mpi.transport.engine cimport (
    E, SHMPI_OTHERS_END, Wait, close, flag, note, notify_holders, shmpi_awaited, shmpi_engine,
    shmpi_job, shut, wait_end, wait_turn_for,
)

cdef extern from "transport/leaving.h" nogil:
    ctypedef uint32_t word32 "shmnd_word32"

    struct shmpi_rank:
        word32 left

    struct shmpi_remains:
        int peer, tag
        flag others, collective

    shmpi_remains shmpi_remaining(const shmpi_engine *e, flag has_left)
    shmpi_awaited shmpi_await_left(const shmpi_engine *e)
    int shmpi_see_left(shmpi_engine *e)
    void shmpi_leave(shmpi_engine *e)
    void shmpi_give_place(shmpi_engine *e)
    shmpi_rank *shmpi_job_rank(shmpi_job *job, uint32_t rank)
    uint32_t shmnd_acquire32(const word32 *w)

cdef bint _finalized = False


def finalize() -> None:
    """Wait for what the program left, as far as it can still end.

    Not after an exception that the program did not catch: the job is to end now.
    """
    global _finalized
    if _finalized or shut:
        return
    _finalized = True
    if not hasattr(sys, "last_value"):
        _stay(False)
        shmpi_leave(E)
        _stay(True)
        shmpi_give_place(E)
    notify_holders()
    close()


cdef int _stay(bint has_left) except -1:
    """Wait until all sends have ended and, when the rank has left, until no message is to come for
    a receive. Publish the first that remains."""
    cdef shmpi_remains rest = shmpi_remaining(E, has_left)
    cdef shmpi_awaited departure
    cdef Wait wait = Wait(0, False)
    cdef int peer = -1
    if rest.peer < 0:
        return 0
    try:
        while rest.peer >= 0 or wait.idle == 0:
            departure = shmpi_await_left(E)
            shmpi_see_left(E)
            if wait_turn_for(&wait, &departure) or (wait.noted and rest.peer != peer):
                peer = rest.peer
                note(1 | (SHMPI_OTHERS_END if rest.others else 0), peer, rest.tag,
                     "a collective at Finalize" if rest.collective else "Finalize", "")
            rest = shmpi_remaining(E, has_left)
    finally:
        wait_end(&wait)
    return 0


def has_left(rank: int) -> bool:
    """Return whether a rank of the job has come to its end, or its process has ended.

    All that it sent is in the lanes: a poll for messages after this finds them.
    """
    cdef uint32_t number = rank
    if number >= <uint32_t>E.size:
        raise ValueError(f"has_left: rank {rank} of a job of {E.size}")
    return shmnd_acquire32(&shmpi_job_rank(E.job, number).left) != 0  # SYNC left: acquire


def begin() -> None:
    """Have this rank stay when MPI is finalized, and at the latest when its process ends."""
    hooks.provide(finalize=finalize)
    atexit.register(finalize)
