# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The memory of a job, for the launcher, which is not a rank of it."""

from libc.stdint cimport uint32_t, uint64_t


cdef extern from "job.h" nogil:
    struct shmpi_job:
        pass
    uint64_t shmpi_job_bytes(uint32_t size, uint64_t lane_bytes)
    void shmpi_job_lay_out(shmpi_job *job, uint32_t size, uint64_t lane_bytes, bint crowded)


def job_bytes(size: int, lane_bytes: int) -> int:
    """Return the bytes that the memory of a job takes."""
    return shmpi_job_bytes(size, lane_bytes)


def lay_out(memory: object, size: int, lane_bytes: int, crowded: bool) -> None:
    """Lay the zeroed memory of a job out. Raise ValueError where there is too little of it."""
    cdef unsigned char[::1] view = memory
    if <uint64_t>view.shape[0] < shmpi_job_bytes(size, lane_bytes):
        raise ValueError(f"lay_out: {view.shape[0]} bytes are too few for {size} ranks")
    shmpi_job_lay_out(<shmpi_job *>&view[0], size, lane_bytes, crowded)
