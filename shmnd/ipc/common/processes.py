# SPDX-License-Identifier: Apache-2.0
"""Processes by names that hold in every PID namespace.

Each PID namespace numbers its processes itself, so the number that one process or the broker has of
another one may be that of a third process here. A process is named by its namespace and its number
there instead. What /proc shows is searched for a process of another namespace, which is possible
where that one is within the namespace of /proc; other processes are not seen.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final, NamedTuple

from shmnd.common.interruption import pass_on

__all__ = [
    "Process",
    "is_another",
    "may_be_hidden",
    "own_process",
    "pid_here",
    "pid_in_proc",
    "proc_space",
    "users_of",
    "why_hidden",
]

_LIMITS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_PROC: Final = Path("/proc")


class Process(NamedTuple):
    """A process as it names itself."""

    space: int
    """Its PID namespace, by the inode of that; 0 where /proc does not show it."""
    number: int
    """Its number there."""


_own: tuple[Process, bool] = Process(0, 0), False


def own_process() -> Process:
    """Return the name of this process."""
    return _self()[0]


def _self() -> tuple[Process, bool]:
    """Return its name, and whether /proc has the numbers of its namespace."""
    global _own
    pid = os.getpid()
    if _own[0].number != pid:
        try:
            _own = Process(_space_of("self"), pid), str((_PROC / "self").readlink()) == str(pid)
        except OSError as exc:
            pass_on(exc)
            _own = Process(0, pid), True
    return _own


def _space_of(entry: str) -> int:
    return (_PROC / entry / "ns/pid").stat().st_ino


def pid_here(process: Process, likely: int = 0) -> int:
    """Return the number of a process in the PID namespace of this one; 0 when it is not known.

    `likely` is the number that the broker has of it.
    """
    own, proc_is_ours = _self()
    if process.space in (own.space, 0):
        return process.number
    try:
        return _search(process, likely) if proc_is_ours else 0
    except OSError as exc:
        pass_on(exc)
        return 0  # out of descriptors: not known


def pid_in_proc(process: Process, likely: int = 0) -> int:
    """Return the number of a process in /proc; 0 when it is not seen there.

    OSError when this process is out of descriptors or memory, and cannot see.
    """
    own, proc_is_ours = _self()
    if process.space in (own.space, 0) and proc_is_ours:
        return process.number if os.path.exists(f"/proc/{process.number}") else 0  # noqa: PTH110
    return _search(process, likely)


def users_of(folder: int) -> set[int]:
    """Return the users of a process: its real, effective and saved one, and that for files.

    `folder` is a descriptor of its folder in /proc. FileNotFoundError when it has ended.
    """
    try:
        status = (_PROC / f"self/fd/{folder}/status").read_bytes()
    except ProcessLookupError as exc:
        pass_on(exc)
        raise FileNotFoundError(errno.ENOENT, "it has ended") from None
    line = next(line for line in status.splitlines() if line.startswith(b"Uid:"))
    return {int(word) for word in line.split()[1:]}


def may_be_hidden(process: Process) -> bool:
    """Return whether a process that /proc does not show may live.

    It is in another PID namespace then, or /proc shows no process at all.
    """
    own, proc_is_ours = _self()
    return not own.space or not proc_is_ours or process.space not in (own.space, 0)


def why_hidden() -> str:
    """Return why this process does not see another one in /proc, and what helps."""
    if not _self()[0].space:
        return "/proc shows no processes here: mount it (mount -t proc proc /proc)"
    return (
        "it is in another PID namespace; run containers with that of the host (--pid=host), or "
        "with a common one"
    )


def proc_space() -> int:
    """Return the PID namespace whose numbers /proc has; 0 where that is not known."""
    own, proc_is_ours = _self()
    return own.space if proc_is_ours else 0


def is_another(process: Process, pid: int, space: int) -> bool:
    """Return whether a number is not that of a process, as the kernel shows here.

    It is the number in the PID namespace `space`. False where that cannot be seen from here, and
    for 0 and below, which name groups of processes. OSError when this process is out of descriptors
    or memory, and cannot see.
    """
    if pid <= 0 or not space or space != proc_space():
        return False
    entry = str(pid)
    try:
        # A process to which /proc does not show its namespace announces 0.
        return _number_of(entry) != process.number or 0 != process.space != _space_of(entry)
    except (FileNotFoundError, ProcessLookupError) as exc:
        pass_on(exc)
        return not _exists(pid)  # /proc may hide those of other users
    except (OSError, ValueError) as exc:
        pass_on(exc)
        if isinstance(exc, OSError) and exc.errno in _LIMITS:
            raise
        return False


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError) as exc:
        pass_on(exc)
        return False
    except OSError as exc:
        pass_on(exc)  # of another user
    return True


def _search(process: Process, likely: int) -> int:
    """Return the number of a process in /proc, `likely` first; 0 if it is not there."""
    if likely > 0 and _is(process, str(likely)):
        return likely
    names = (entry.name for entry in _PROC.iterdir())
    return int(next((name for name in names if name.isdecimal() and _is(process, name)), 0))


def _is(process: Process, entry: str) -> bool:
    try:
        return _space_of(entry) == process.space and _number_of(entry) == process.number
    except OSError as exc:
        if exc.errno in _LIMITS:
            raise
    except ValueError as exc:
        pass_on(exc)
    # It has ended, or belongs to another user.
    return False


def _number_of(entry: str) -> int:
    """Return the number of a process in its own PID namespace."""
    for line in (_PROC / entry / "status").read_text(encoding="utf-8").splitlines():
        if line.startswith("NSpid:"):  # the last number is that of its own namespace
            return int(line.split()[-1])
    raise ValueError(f"/proc/{entry}/status has no NSpid")
