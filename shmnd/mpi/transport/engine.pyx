# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The engine of this rank: one for each process, attached to the memory of its job at import.

The engine is C (the headers in this folder) and used by one thread at a time: all calls hold the
interpreter's lock, and only yielding and sleeping leave it. Without the launcher a process is a
job of one rank.
"""

import os
import sys
import time
from typing import NoReturn

from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport errno
from libc.stdlib cimport calloc
from posix.mman cimport MAP_FAILED, PROT_READ, PROT_WRITE

from shmnd.mpi.transport.outer_call cimport OuterCall, outer_of

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.transport import hooks
from shmnd.mpi.transport.place import place, refuse_taken

cdef extern from "transport/collectives/shapes.h" nogil:
    shmpi_engine *shmpi_engine_new(shmpi_job *job, int rank)
    uint64_t shmpi_job_bytes(uint32_t size, uint64_t lane_bytes)
    void shmpi_job_lay_out(shmpi_job *job, uint32_t size, uint64_t lane_bytes, flag crowded)
    flag shmpi_job_fits(const shmpi_job *job, uint64_t n)
    uint32_t shmpi_take_place(shmpi_job *job, uint32_t rank)
    uint32_t shmpi_contexts(shmpi_engine *e, uint32_t count)
    shmpi_req *shmpi_req_new(shmpi_engine *e)
    void shmpi_req_free(shmpi_engine *e, shmpi_req *r)
    flag shmpi_return_borrowed(shmpi_engine *e, shmpi_req *r)
    flag shmpi_start_send(shmpi_engine *e, shmpi_req *r)
    flag shmpi_send_now(shmpi_engine *e, int peer, uint32_t context, int tag, const void *data,
                        uint64_t n)
    flag shmpi_start_receive(shmpi_engine *e, shmpi_req *r)
    void shmpi_cancel(shmpi_engine *e, shmpi_req *r)
    void shmpi_let_go(shmpi_engine *e, shmpi_req *r)
    shmpi_message *shmpi_probe(shmpi_engine *e, uint32_t context, int source, int tag)
    void shmpi_claim(shmpi_engine *e, shmpi_message *m)
    void shmpi_deliver(shmpi_engine *e, shmpi_message *m, shmpi_req *r)
    void shmpi_sched_start(shmpi_engine *e, shmpi_sched *s)
    uint32_t shmpi_progress(shmpi_engine *e)
    void shmpi_refresh(shmpi_engine *e)
    uint32_t shmpi_death_of(shmpi_engine *e, int rank)
    flag shmpi_revoked(shmpi_engine *e, uint32_t context)
    flag shmpi_revoke(shmpi_engine *e, uint32_t first)
    flag shmpi_send_revoked(shmpi_engine *e, int peer, uint32_t first)
    void shmpi_sched_stop(shmpi_engine *e, shmpi_sched *s, int fault)
    void shmpi_stop(shmpi_engine *e, shmpi_req *r, int fault)
    int shmpi_sched_peer(shmpi_engine *e, shmpi_sched *s)
    void shmpi_note_mine(shmpi_engine *e, uint32_t count, int peer, int tag, const char *call,
                         const char *comm)
    void shmpi_note_mine_end(shmpi_engine *e)
    void shmpi_mark_aborted(shmpi_engine *e)
    void shmpi_idle_begin(shmpi_engine *e)
    void shmpi_idle_for(shmpi_engine *e, uint32_t turn, const shmpi_awaited *a)
    void shmpi_idle_end(shmpi_engine *e)
    flag shmpi_become_inert(shmpi_engine *e, uint64_t n)
    void shmnd_pause()

cdef uint64_t _nbytes = 0
cdef uint32_t _vain = 0


# -- attaching --

cdef shmpi_job *_alone() except NULL:
    """Return the memory of a job of one rank."""
    cdef uint64_t n = shmpi_job_bytes(1, 4096)
    cdef shmpi_job *job = <shmpi_job *>calloc(1, n)
    if job == NULL:
        raise MemoryError("shmnd.mpi: no memory for the engine")
    shmpi_job_lay_out(job, 1, 4096, False)
    return job


cdef int _refuse_mapping(int failure) except -1:
    from shmnd.common.shortages import remedy_of_mapping
    raise OSError(
        failure,
        f"shmnd.mpi: the memory of the job, {_nbytes} bytes, cannot be mapped: "
        f"{os.strerror(failure)}; {remedy_of_mapping(failure)}"
    )


cdef int _attach() except -1:
    global E, _nbytes
    cdef shmpi_job *job
    cdef int rank = 0
    found = place()
    if found is None:
        job = _alone()
    else:
        descriptor, rank = found
        # Mapped here and not by the data plane, which takes longer to import than all this.
        _nbytes = os.fstat(descriptor).st_size
        job = <shmpi_job *>shmnd_map_sparse(_nbytes, PROT_READ | PROT_WRITE, descriptor)
        if <void *>job == MAP_FAILED:
            _refuse_mapping(errno)
        if not shmpi_job_fits(job, _nbytes) or not 0 <= rank < <int>job.size:
            raise RuntimeError(
                f"shmnd.mpi: descriptor {descriptor} is not the memory of a job with a rank "
                f"{rank}; start the program by `shmnd mpiexec` of the same version"
            )
        refuse_taken(shmpi_take_place(job, rank), rank)
        # Under Yama, processes of the launcher may read what they are sent; others refuse this.
        prctl(PR_SET_PTRACER, int(os.environ.get("SHMND_MPI_LAUNCHER", "0")), 0, 0, 0)
    E = shmpi_engine_new(job, rank)
    if E == NULL:
        raise MemoryError("shmnd.mpi: no memory for the engine")
    return 0


# -- what other modules call --

cdef void *arena() noexcept:
    """Return the `struct shmpi_arena` of this rank, NULL where it has none."""
    return NULL if E.arena.base == NULL else <void *>&E.arena


cdef shmpi_req *req_new() except NULL:
    cdef shmpi_req *r
    if E.ended != NULL:
        notify_holders()
    r = shmpi_req_new(E)
    if r == NULL:
        raise MemoryError("shmnd.mpi: no memory for a request")
    return r


cdef void req_free(shmpi_req *r) noexcept:
    shmpi_req_free(E, r)


cdef int return_borrowed(shmpi_req *r) except -1:
    if not shmpi_return_borrowed(E, r):
        raise MemoryError("shmnd.mpi: no memory to answer the sender of a message")
    return 0


cdef int start_send(shmpi_req *r) except -1:
    if not shmpi_start_send(E, r):
        raise MemoryError("shmnd.mpi: no memory for a send")
    return 0


cdef bint send_now(int peer, uint32_t context, int tag, const void *data, uint64_t n) noexcept:
    return shmpi_send_now(E, peer, context, tag, data, n)


cdef int start_receive(shmpi_req *r) except -1:
    if not shmpi_start_receive(E, r):
        raise MemoryError("shmnd.mpi: no memory for a receive")
    return 0


cdef void cancel(shmpi_req *r) noexcept:
    shmpi_cancel(E, r)


cdef void let_go(shmpi_req *r) noexcept:
    """Have the engine free it when it is done."""
    shmpi_let_go(E, r)


cdef void hold(shmpi_req *r, object holder) noexcept:
    """Keep an object until a request that is not done is; then `holder.ended()` frees the request.

    It is called when the program begins another operation, or ends.
    """
    Py_INCREF(holder)
    r.holder = <void *>holder


cpdef int notify_holders() except -1:
    cdef shmpi_req *r
    cdef object holder
    while E.ended != NULL:
        r = E.ended
        E.ended = r.next
        holder = <object>r.holder
        r.holder = NULL
        Py_DECREF(holder)
        holder.ended()
    return 0


cdef shmpi_message *probe(uint32_t context, int source, int tag) noexcept:
    return shmpi_probe(E, context, source, tag)


cdef void claim(shmpi_message *m) noexcept:
    shmpi_claim(E, m)


cdef void deliver(shmpi_message *m, shmpi_req *r) noexcept:
    shmpi_deliver(E, m, r)


cdef void sched_start(shmpi_sched *s) noexcept:
    shmpi_sched_start(E, s)


cdef uint32_t new_contexts(uint32_t count) noexcept:
    """Return the first of `count` numbers that no communicator of the job has."""
    return shmpi_contexts(E, count)


cdef uint32_t death_of(int rank) noexcept:
    """Return the number of a rank's death among those that this rank knows of; 0: it lives."""
    return shmpi_death_of(E, rank)


cdef bint is_revoked(uint32_t context) noexcept:
    return E.revocations != 0 and shmpi_revoked(E, context)


cdef int revoke(uint32_t context, tuple ranks) except -1:
    """Revoke the contexts of a communicator here, and inform other ranks of the job."""
    cdef bint fits = shmpi_revoke(E, context)
    for each in ranks:
        if each != E.rank:
            fits = shmpi_send_revoked(E, each, context) and fits
    if not fits:
        raise MemoryError("shmnd.mpi: no memory to revoke a communicator")
    return 0


cdef void stop_sched(shmpi_sched *s, int fault) noexcept:
    shmpi_sched_stop(E, s, fault)


cdef void stop_req(shmpi_req *r, int fault) noexcept:
    shmpi_stop(E, r, fault)


cdef int sched_peer(shmpi_sched *s) noexcept:
    """Return a rank that a collective waits for, -1 if that is not known."""
    return shmpi_sched_peer(E, s)


cdef int note(uint32_t count, int peer, int tag, str call, str comm, int64_t context=-1) except -1:
    """Publish what this rank waits for: a rank of the job, or -1: any, also this one. The call
    of the program that has the context counts. Only calls of Comm have tags that it knows."""
    cdef OuterCall outer = None if context < 0 else outer_of(<uint32_t>context)
    if outer is not None:
        call, comm = outer.name, outer.title()
    if outer is not None or "." in call:
        tag = -1
    if peer < 0 and len(sys._current_frames()) > 1:
        count |= SHMPI_OTHERS_END  # another thread may end the wait
    shmpi_note_mine(
        E, count, peer, tag, call.encode("utf-8", "replace"), comm.encode("utf-8", "replace")
    )
    return 0


cdef void note_end() noexcept:
    shmpi_note_mine_end(E)


cdef void see_failures() noexcept:
    """Check once more for ranks that have died."""
    shmpi_refresh(E)


cdef int turn(unsigned int *idle) except -1:
    """Take one turn of a wait: progress, and where nothing moves, patience. Raise at Ctrl-C."""
    return turn_for(idle, NULL)


cdef int turn_for(unsigned int *idle, const shmpi_awaited *a) except -1:
    """Take a turn of a wait for another rank's word, and for messages."""
    if shmpi_progress(E):
        idle[0] = 0
        return 0
    idle[0] += 1
    if idle[0] < E.awake_polls:
        shmnd_pause()
        return 0
    if shut == FORKED:
        refuse("")
    cdef unsigned int beyond = idle[0] - E.awake_polls
    shmpi_idle_begin(E)
    with nogil:
        shmpi_idle_for(E, beyond, a)
    shmpi_idle_end(E)
    if beyond & 15 == 0 or beyond >= E.yields:
        PyErr_CheckSignals()
    return 0


cdef bint wait_turn(Wait *wait) except -1:
    """Take one turn; return True once, when the caller is to publish its wait (`note`)."""
    return wait_turn_for(wait, NULL)


cdef bint wait_turn_for(Wait *wait, const shmpi_awaited *a) except -1:
    turn_for(&wait.idle, a)
    if wait.noted:
        if wait.idle == 0 and (E.copying != NULL or E.pushing != NULL):
            wait.noted = False  # a long message moves: readers of notes do not take it for stuck
            note_end()
        return False
    if wait.idle < E.awake_polls + E.yields:
        return False
    wait.noted = True
    return True


cdef void wait_end(Wait *wait) noexcept:
    """End a wait, and its note."""
    if wait.noted:
        note_end()


cdef int poll() except -1:
    """Make progress for a call that asks and does not wait. A program that asks in vain many times
    leaves the core to others from time to time."""
    global _vain
    if shmpi_progress(E):
        _vain = 0
        return 1
    _vain += 1
    if _vain > E.awake_polls:
        _vain = 0
        if shut == FORKED:
            refuse("")
        with nogil:
            sched_yield()
        PyErr_CheckSignals()
    return 0


cdef bint spin(shmpi_req *r) noexcept:
    """Return whether it is done after all polls that a wait makes before it sleeps."""
    cdef unsigned int idle = 0
    while not r.done:
        if shmpi_progress(E):
            idle = 0
            continue
        idle += 1
        if idle >= E.awake_polls:
            return False
        shmnd_pause()
    return True


# -- what objects ask --

def rank() -> int:
    """Return the rank of this process in its job."""
    return E.rank


def size() -> int:
    """Return the number of ranks of the job."""
    return E.size


cpdef uint32_t progress() noexcept:
    """Make progress; return the number of things that moved."""
    return shmpi_progress(E)


def abort(code: int) -> NoReturn:
    """End this rank with an exit code, at which the launcher ends the job."""
    shmpi_mark_aborted(E)
    hooks.end_process(code & 0xff or 1)


def _forked() -> None:
    """Make the engine of a forked child inert: what it has under way is the rank's."""
    global shut
    if _nbytes:
        shut = FORKED
        if not shmpi_become_inert(E, _nbytes):
            os._exit(1)  # it would write into the memory of the ranks


cdef void close() noexcept:
    """Have all calls that communicate refused, where communicators check for a revocation."""
    global shut
    shut = FINALIZED
    E.revocations += 1


cdef int refuse(str call) except -1:
    """Raise the error of a call in a forked child, or after MPI was finalized."""
    call = call or "a call of MPI"
    if shut == FINALIZED:
        raise MPIException(constants.ERR_OTHER, f"{call}: MPI is finalized (Finalize)")
    raise MPIException(
        constants.ERR_OTHER,
        f"{call}: process {os.getpid()} was forked from rank {E.rank} and is "
        "not a rank of the job; a child process that uses MPI has to be a program of its own "
        "(subprocess, or multiprocessing with the start method 'spawn'), and is a job of one rank",
    )


def require_open(call: str) -> None:
    """Raise the error of a call that communicates, where this process may not."""
    if shut:
        refuse(call)


_attach()
hooks.provide(
    rank=rank, size=size, abort=abort, progress=progress,
    wtime=time.monotonic,  # a clock that all ranks share
)
os.register_at_fork(after_in_child=_forked)
