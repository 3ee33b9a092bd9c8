# SPDX-License-Identifier: Apache-2.0
"""The memory of a job, as its launcher makes it, reads it and writes it.

It has no name: ranks inherit its descriptor, and it is gone with the last of them.
"""

from __future__ import annotations

from shmnd.mpi.launcher.options import JobOptions
from shmnd.mpi.launcher.rank import Rank
from shmnd.mpi.launcher.sizes import arena_bytes, fits_in_file, lane_bytes
from shmnd.mpi.transport import job_memory
from shmnd.mpi.transport.job_memory import Wait
from shmnd.ring.shared_memory.segment import Segment

__all__ = ["Memory"]


class Memory:
    """The memory of one job; before `create` and after `close` there is none."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._lane = 0
        self._arena = 0

    def create(self, options: JobOptions) -> Segment:
        """Create it for so many ranks as the options name, without content."""
        size = options.ranks
        self._lane = lane_bytes(size)
        self._arena = 0 if options.private_arrays else arena_bytes(size)
        committed = job_memory.job_bytes(size, self._lane)
        whole = committed
        if self._arena:
            whole = job_memory.whole_bytes(size, self._lane, self._arena)
        if not fits_in_file(whole):
            self._arena, whole = 0, committed
        segment = Segment.create(whole, label="mpi", call="shmnd mpiexec", committed=committed)
        self._segment = segment
        return segment

    def lay_out(self, size: int, crowded: bool) -> None:
        """Write what ranks have to find in it at their start."""
        job_memory.lay_out(self._segment, size, self._lane, crowded, self._arena)

    def wait_of(self, rank: Rank) -> Wait | None:
        """Return what a rank waits for, or None."""
        return job_memory.wait_of(self._segment, rank.number)

    def process_of(self, rank: Rank) -> int:
        """Return the process that makes the calls of a rank: a shell may have started it."""
        return job_memory.pid_of(self._segment, rank.number) or rank.process.pid

    def has_attached(self, rank: Rank) -> bool:
        """Return whether a rank that runs has initialized MPI."""
        return bool(job_memory.pid_of(self._segment, rank.number))

    def forget_process(self, rank: Rank) -> None:
        """Forget the process of a rank that has ended, before another one has its number."""
        job_memory.forget_process(self._segment, rank.number)

    def leave(self, rank: Rank) -> None:
        """Show the other ranks that one has ended."""
        job_memory.leave(self._segment, rank.number)

    def release(self, number: int) -> None:
        """Release a rank that waits at its end."""
        job_memory.release(self._segment, number)

    def is_aborted(self) -> bool:
        """Return whether a rank has aborted the job."""
        return job_memory.aborted(self._segment)

    def close(self) -> None:
        """Close its descriptor; the ranks have their own."""
        if self._segment is not None:
            self._segment.close_fd()
            self._segment = None
