# SPDX-License-Identifier: Apache-2.0
"""Jobs of `shmnd mpiexec`: their ranks, and what each waits for.

A job has no name. Its ranks are found by their environment, and its memory is read through the
descriptor that each of them has; none of them is asked.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shmnd.broker.place import DEFAULT_NAMESPACE
from shmnd.mpi.launcher import waiting
from shmnd.mpi.transport import job_memory

_RANK: Final = "SHMND_MPI_RANK"
_JOB: Final = "SHMND_MPI_JOB"
_LAUNCHER: Final = "SHMND_MPI_LAUNCHER"
_BASE: Final = "SHMND_RUNTIME_DIR"


@dataclass(frozen=True)
class Rank:
    """One rank of a job; the job is called by the process of its launcher."""

    job: int
    rank: int
    size: int
    pid: int
    wait: job_memory.Wait | None
    command: str
    begun: bool
    """Whether it has initialized MPI."""

    @property
    def waits(self) -> str | None:
        """The reason why the rank makes no progress, as text; None when there is none."""
        if not self.begun:
            return "has not initialized MPI"
        return None if self.wait is None else waiting.words(self.wait)


def ranks(namespace: str) -> list[Rank]:
    """Return the ranks of this user's jobs that were started for a namespace, in order.

    A namespace of another runtime directory is another one, whatever its name.
    """
    return sorted(_found(namespace), key=lambda each: (each.job, each.rank))


def _found(namespace: str) -> Iterator[Rank]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            # A process of another user cannot be read, and one may end meanwhile.
            with contextlib.suppress(OSError, ValueError):
                rank = _rank_of(process, namespace)
                if rank is not None:
                    yield rank


def _rank_of(process: Path, namespace: str) -> Rank | None:
    words = (process / "environ").read_bytes().decode(errors="replace").split("\0")
    set_here = dict(word.partition("=")[::2] for word in words)
    if not {_RANK, _JOB} <= set_here.keys():
        return None
    if (set_here.get("SHMND_NAMESPACE") or DEFAULT_NAMESPACE) != namespace:
        return None
    if set_here.get(_BASE, "") != os.environ.get(_BASE, ""):
        return None
    rank, pid = int(set_here[_RANK]), int(process.name)
    launcher = (process / "stat").read_text().rpartition(")")[2].split()[1]
    file = os.open(process / "fd" / str(int(set_here[_JOB])), os.O_RDONLY | os.O_CLOEXEC)
    try:
        with mmap.mmap(file, 0, prot=mmap.PROT_READ) as memory:
            attached = job_memory.pid_of(memory, rank)
            if attached != pid and (attached or launcher != set_here.get(_LAUNCHER)):
                return None  # started by a rank, or by a shell that is in its place
            size, wait = job_memory.size_of(memory), job_memory.wait_of(memory, rank)
    finally:
        os.close(file)
    command = (process / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
    words_of = command.decode(errors="replace")
    return Rank(int(launcher), rank, size, pid, wait, words_of, attached == pid)
