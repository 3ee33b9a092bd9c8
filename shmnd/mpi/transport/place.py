# SPDX-License-Identifier: Apache-2.0
"""The place of this process: a rank of a job, or a process on its own."""

import fcntl
import os
import select
import signal
from collections.abc import Mapping
from typing import Final

from shmnd.common.interruption import pass_on

_VARIABLE: Final = "SHMND_MPI_PROCESS"
"""The process that is the rank. Its child processes inherit the variable, and are not the rank."""


LIFE_VARIABLE: Final = "SHMND_MPI_LIFE"
"""The descriptor of a pipe that ends with the launcher."""

_PREFIX: Final = "SHMND_MPI_"
"""Of the variables that say which rank a process is."""


def outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that would make a process a rank."""
    return {name: value for name, value in environment.items() if not name.startswith(_PREFIX)}


def place() -> tuple[int, int] | None:
    """Return the descriptor of the memory of the job and the rank, or None for a job of one rank.

    The process keeps the place: a process that it starts later is a job of its own, also where it
    inherits the descriptor, because two processes cannot both be one rank.
    """
    text = os.environ.get("SHMND_MPI_JOB")
    if text is None:
        return None
    taken = os.environ.get(_VARIABLE)
    if taken is not None and taken != str(os.getpid()):
        for name in os.environ.keys() - outside(os.environ).keys():
            del os.environ[name]
        return None
    _check(int(text))
    if os.environ.get("SHMND_MPI_LAUNCHER") != str(os.getppid()):
        _die_with_launcher()
    os.environ[_VARIABLE] = str(os.getpid())
    return int(text), int(os.environ["SHMND_MPI_RANK"])


def _die_with_launcher() -> None:
    """Have the kernel kill this process when the launcher ends, as with child processes of it.

    For a rank that a program between has started, such as a shell. The owner of a signal belongs to
    an open file, so that each process opens the pipe anew.
    """
    try:
        life = os.open(f"/proc/self/fd/{os.environ[LIFE_VARIABLE]}", os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, os.O_RDONLY | os.O_NONBLOCK | os.O_ASYNC)
    except (KeyError, OSError) as exc:
        pass_on(exc)
        return  # the program between has closed it, or there is no /proc
    watched = select.poll()
    watched.register(life, 0)
    if watched.poll(0):  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)


def refuse_taken(process: int, rank: int) -> None:
    """Raise an error if another process has the place of this one, or had it; 0: none has."""
    if process:
        raise RuntimeError(
            f"shmnd.mpi: process {process} is rank {rank} of this job, or was it; a script that "
            "`shmnd mpiexec` starts as a rank can run one program that uses MPI (for each further "
            "one: a `shmnd mpiexec` of its own)"
        )


def _check(descriptor: int) -> None:
    """Raise an error unless a descriptor is memory that no process can truncate."""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError as exc:
        pass_on(exc)
        raise RuntimeError(
            f"shmnd.mpi: descriptor {descriptor} is not the memory of the job "
            f"({exc.strerror}): a program between `shmnd mpiexec` and this process closed it; that "
            "program must replace itself by this one (exec) or pass the descriptor on "
            "(close_fds=False)"
        ) from exc
    if seals & fcntl.F_SEAL_SHRINK == 0:
        raise RuntimeError(
            f"shmnd.mpi: descriptor {descriptor} is memory that another process can truncate; "
            "start the program by `shmnd mpiexec`"
        )
