# SPDX-License-Identifier: Apache-2.0
"""What a process has that a test could leave behind: names, descriptors, processes, mappings.

It is taken before and after each of ten thousand tests, so nothing here makes a path of a string.
"""

# ruff: noqa: PTH115, PTH208

import os
import re
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, resource_tracker
from typing import Final

_ANOTHER_RUN: Final = re.compile(rf"shmnd-test-(?!{os.getpid()}-)\d+-")
_MAPPED: Final = re.compile(r"^(\S+) .* ((?:/dev/shm/|/memfd:)\S*shmnd.*)$")


def _text(path: str) -> str:
    """Return what a file of the kernel says."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 1 << 16), b"")).decode()
    finally:
        os.close(descriptor)


def _shared_memory() -> set[str]:
    """Names in /dev/shm that are ours; other programs of this machine may come and go.

    So may those of a concurrent test run, whose names carry the number of its process.
    """
    return {
        f"/dev/shm/{name}"
        for name in os.listdir("/dev/shm")
        if "shmnd" in name and _ANOTHER_RUN.match(name) is None
    }


def _descriptors() -> Iterator[tuple[int, str]]:
    """Yield the descriptors that are open, each with what it leads to."""
    for number in os.listdir("/proc/self/fd"):
        try:
            yield int(number), os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one that lists the folder
            continue


def open_files() -> list[str]:
    """Return what each open descriptor leads to, sorted: two may lead to the same."""
    return sorted(leads_to for _, leads_to in _descriptors())


def descriptors() -> set[str]:
    """Open descriptors with what they lead to, without those of Python's own helpers."""
    helpers = {
        resource_tracker._resource_tracker._fd,  # type: ignore[attr-defined]
        forkserver._forkserver._forkserver_alive_fd,  # type: ignore[attr-defined]
    }
    return {
        f"descriptor {number} -> {leads_to}"
        for number, leads_to in _descriptors()
        # Some versions of libffi open their own file, for ctypes.
        if number not in helpers and "libffi" not in leads_to
    }


def _below(pid: int) -> Iterator[int]:
    """Processes below one: of each of its threads those that the kernel lists as its children."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:  # it has ended meanwhile
        return
    for thread in threads:
        try:
            listed = _text(f"/proc/{pid}/task/{thread}/children")
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in map(int, listed.split()):
            yield child
            yield from _below(child)


def _children() -> set[str]:
    """Processes below this one, without Python's own helpers."""
    helpers = {
        resource_tracker._resource_tracker._pid,  # type: ignore[attr-defined]
        forkserver._forkserver._forkserver_pid,  # type: ignore[attr-defined]
    }
    found = set()
    for pid in _below(os.getpid()):
        if pid in helpers:
            continue
        try:
            stat = _text(f"/proc/{pid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Named by pid and start time, since a pid may come back. The start is counted from that of
        # the machine: a time of day changes when its clock is set.
        # Its name would not do: that changes when it executes a program.
        found.add(f"process {pid} of {stat.rpartition(')')[2].split()[19]}")
    return found


def described(what: str) -> str:
    """Return a part of the census with the present name of a process."""
    kind, _, rest = what.partition(" ")
    if kind != "process":
        return what
    pid, _, start = rest.partition(" ")
    try:
        name = _text(f"/proc/{pid}/comm").strip()
    except (FileNotFoundError, ProcessLookupError):
        name = "which has just ended"
    return f"process {pid} {name} {start}"


def _mappings() -> set[str]:
    """Ranges of this process that map shared memory of ours."""
    lines = _text("/proc/self/maps").split("\n")
    ours = (line for line in lines if "shmnd" in line)  # the expression takes long for each
    return {f"mapping {m[1]} of {m[2]}" for m in map(_MAPPED.match, ours) if m}


_LOOKS: Final[tuple[Callable[[], set[str]], ...]] = (
    _shared_memory,
    descriptors,
    _children,
    _mappings,
)


def census() -> set[str]:
    """Return what this process has now, each part in words."""
    return set[str]().union(*(look() for look in _LOOKS))
