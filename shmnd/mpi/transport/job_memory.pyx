# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The memory of a job, for the launcher and for tools, which are not ranks of it."""

from typing import NamedTuple

from libc.stdint cimport int32_t, uint32_t, uint64_t

cdef extern from "stdbool.h":
    ctypedef unsigned char flag "bool"

cdef extern from "transport/collectives/shapes.h" nogil:
    ctypedef uint32_t word32 "shmnd_word32"

    struct shmpi_job:
        uint32_t size
        word32 aborted

    struct shmpi_rank:
        word32 pid, asleep

    struct shmpi_wait:
        uint32_t count
        int32_t peer, tag
        uint64_t since_ns
        char call[33]
        char comm[73]

    uint64_t shmpi_job_bytes(uint32_t size, uint64_t lane_bytes)
    void shmpi_job_lay_out(shmpi_job *job, uint32_t size, uint64_t lane_bytes, flag crowded)
    void shmpi_job_add_arenas(shmpi_job *job, uint64_t arena_bytes)
    uint64_t shmpi_arena_at(uint32_t size, uint64_t lane_bytes, uint64_t arena_bytes, uint32_t rank)
    flag shmpi_job_fits(const shmpi_job *job, uint64_t n)
    uint32_t shmpi_job_mark_dead(shmpi_job *job, uint32_t rank)
    void shmpi_job_leave(shmpi_job *job, uint32_t rank)
    void shmpi_job_release(shmpi_job *job, uint32_t rank)
    shmpi_rank *shmpi_job_rank(shmpi_job *job, uint32_t rank)
    enum:
        SHMPI_OTHERS_END
        SHMPI_POLLS
        SHMPI_SCHEDULE
    flag shmpi_read_note(const shmpi_rank *rank, shmpi_wait *w)
    void shmpi_wake(shmpi_rank *rank)
    uint32_t shmnd_relaxed32(const word32 *w)
    void shmnd_put32(word32 *w, uint32_t v)


class Wait(NamedTuple):
    """What a rank waits for."""

    calls: int
    peer: int
    tag: int
    since_ns: int
    call: str
    comm: str
    others: bool = False    # whether other ranks than the peer may end the wait
    idle: bool = True       # whether the rank sleeps, or polls: it is in no function of the program
    schedule: bool = False  # whether a rank at its end may end it, by its part of a collective


def job_bytes(size: int, lane_bytes: int) -> int:
    """Return the bytes that the memory of a job takes without arenas."""
    return shmpi_job_bytes(size, lane_bytes)


def whole_bytes(size: int, lane_bytes: int, arena_bytes: int) -> int:
    """Return the bytes of the memory of a job with an arena for each rank."""
    return shmpi_arena_at(size, lane_bytes, arena_bytes, size)


def lay_out(
    memory: object, size: int, lane_bytes: int, crowded: bool, arena_bytes: int = 0
) -> None:
    """Lay the zeroed memory of a job out. Raise ValueError where there is too little of it."""
    cdef unsigned char[::1] view = memory
    cdef uint64_t needed = shmpi_job_bytes(size, lane_bytes)
    if arena_bytes:
        needed = shmpi_arena_at(size, lane_bytes, arena_bytes, size)
    if <uint64_t>view.shape[0] < needed:
        raise ValueError(f"lay_out: {view.shape[0]} bytes are too few for {size} ranks")
    shmpi_job_lay_out(<shmpi_job *>&view[0], size, lane_bytes, crowded)
    if arena_bytes:
        shmpi_job_add_arenas(<shmpi_job *>&view[0], arena_bytes)


cdef shmpi_job *_job(const unsigned char[::1] view, uint32_t rank) except NULL:
    cdef shmpi_job *job = <shmpi_job *>&view[0] if view.shape[0] else NULL
    if job == NULL or not shmpi_job_fits(job, view.shape[0]):
        raise ValueError(f"{view.shape[0]} bytes of memory are not that of a job")
    if rank >= job.size:
        raise ValueError(f"rank {rank} of a job of {job.size}")
    return job


def size_of(memory: object) -> int:
    """Return the number of ranks of a job. Raise ValueError where the memory is not one."""
    return _job(memory, 0).size


def pid_of(memory: object, rank: int) -> int:
    """Return the process of a rank, 0 before it has attached and after its end."""
    return shmnd_relaxed32(&shmpi_job_rank(_job(memory, rank), rank).pid)


def forget_process(memory: object, rank: int) -> None:
    """Forget the process of a rank: no rank copies from its memory, or to it, from now on.

    To be called before the process is reaped, after which others may get its number.
    """
    cdef unsigned char[::1] view = memory
    shmnd_put32(&shmpi_job_rank(_job(view, rank), rank).pid, 0)


def wait_of(memory: object, rank: int) -> Wait | None:
    """Return what a rank waits for, None where it does not wait."""
    cdef shmpi_wait w
    cdef shmpi_rank *block = shmpi_job_rank(_job(memory, rank), rank)
    if not shmpi_read_note(block, &w) or not w.count:
        return None
    call = (<bytes>w.call).decode("utf-8", "replace")
    comm = (<bytes>w.comm).decode("utf-8", "replace")
    others = bool(w.count & SHMPI_OTHERS_END)
    idle = bool(w.count & SHMPI_POLLS) or shmnd_relaxed32(&block.asleep) != 0
    schedule = bool(w.count & SHMPI_SCHEDULE)
    calls = w.count & ~(SHMPI_OTHERS_END | SHMPI_POLLS | SHMPI_SCHEDULE)
    return Wait(calls, w.peer, w.tag, w.since_ns, call, comm, others, idle, schedule)


def announce_death(memory: object, rank: int) -> int:
    """Announce the death of a rank to all ranks; return the number of deaths."""
    cdef unsigned char[::1] view = memory
    return shmpi_job_mark_dead(_job(view, rank), rank)


def leave(memory: object, rank: int) -> None:
    """Announce that a rank sends nothing more, because its process has ended."""
    cdef unsigned char[::1] view = memory
    shmpi_job_leave(_job(view, rank), rank)


def release(memory: object, rank: int) -> None:
    """Release a rank at its end from all that it waits for."""
    cdef unsigned char[::1] view = memory
    shmpi_job_release(_job(view, rank), rank)


def wake(memory: object, rank: int) -> None:
    """Wake a rank that sleeps."""
    cdef unsigned char[::1] view = memory
    shmpi_wake(shmpi_job_rank(_job(view, rank), rank))


def aborted(memory: object) -> bool:
    """Return whether a rank has called Abort."""
    return shmnd_relaxed32(&_job(memory, 0).aborted) != 0
