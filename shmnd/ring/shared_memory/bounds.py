# SPDX-License-Identifier: Apache-2.0
"""How much more shared memory the machine, the control groups and the user's limit allow.

A segment has no name and is in no mounted file system, so the size of /dev/shm does not limit it.
Its pages count for the machine (MemAvailable) and for the memory control group of the process that
makes it, of version 2 or 1, and for each group above that one. Where one of these is exceeded, the
kernel ends a process instead of returning an error; therefore they are read before a segment is
committed.

Memory that another process takes between the reading and the commitment is not seen. A spare part
of each bound is left for that, and for the private memory of the process.
"""

from __future__ import annotations

import io
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from shmnd.common.interruption import pass_on
from shmnd.status import Status, error

__all__ = [
    "LIMIT_VARIABLE",
    "Bound",
    "Mount",
    "groups",
    "least_bound",
    "mounts",
    "no_room",
    "own_limit",
    "read_file",
    "require_room",
]

LIMIT_VARIABLE: Final = "SHMND_MEMORY_LIMIT"
"""The limit that a user sets to what a process makes, in bytes, or with a suffix K, M, G or T."""
_SPARE: Final = 16 << 20
"""Bytes that stay free for others; of a small group, a thirty-second of its limit."""
_HOLDS: Final = 0.1
"""Seconds for which a reading serves small segments too. It takes 0.15 ms, most of a connection."""
_PART: Final = 256
"""A reading serves until segments take one part in so many of the free bytes that it found."""
_UNLIMITED: Final = 1 << 60
"""From here on a number of version 1 stands for 'no limit'."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_GIVEN: Final = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE)

Read = Callable[[str], str]


class Bound(NamedTuple):
    """The bytes that one bound leaves, what the bound is, and how to raise it."""

    free: int
    name: str
    remedy: str


class Mount(NamedTuple):
    """A line of /proc/self/mountinfo."""

    root: str
    """Which folder of its file system is shown."""
    at: str
    kind: str
    options: frozenset[str]


def read_file(name: str) -> str:
    """Return the text of a small file; nothing if it cannot be read."""
    try:
        # Not a number, which a handler of a signal that raises behind the call would leak.
        with io.FileIO(name) as file:
            return file.readall().decode("utf-8", "replace").strip()
    except OSError as exc:
        pass_on(exc)
        return ""


# -- control groups --


def mounts(read: Read) -> Iterator[Mount]:
    """Yield the mounts that this process sees, the innermost of a place last."""
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) >= 6 and len(more) >= 3:
            options = frozenset(more[2].split(","))
            yield Mount(_plain(fields[3]), _plain(fields[4]), more[0], options)


def _plain(text: str) -> str:
    """Return a text with the kernel's escapes of blanks replaced."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def groups(read: Read, controller: str) -> Iterator[PurePosixPath]:
    """Yield the groups from this process's up to the highest that can be seen, in both versions."""
    yield from _groups(read, controller, read("/proc/self/cgroup"))


def _groups(read: Read, controller: str, member: str) -> Iterator[PurePosixPath]:
    for line in member.splitlines():
        number, names, path = line.split(":", 2)
        unified = number == "0" and not names
        if not unified and controller not in names.split(","):
            continue
        for mount in mounts(read):
            shown = mount.kind == "cgroup2" if unified else controller in mount.options
            if shown and mount.kind.startswith("cgroup"):
                yield from _upwards(mount.root, mount.at, path)


def _upwards(root: str, at: str, path: str) -> Iterator[PurePosixPath]:
    group = PurePosixPath(path)
    # Groups above the folder that is mounted (as in a container) cannot be seen.
    below = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
    for folder in (below, *below.parents):
        yield PurePosixPath(at) / folder


@lru_cache(maxsize=4)
def _memory_groups(member: str) -> tuple[str, ...]:
    """Return the groups of a process by the text of its /proc/self/cgroup."""
    return tuple(str(folder) for folder in _groups(read_file, "memory", member))


_VERSIONS: Final = (
    ("memory.max", "memory.current", ""),
    ("memory.high", "memory.current", ""),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""The file of a limit, that of the use, and the prefix of the names in memory.stat."""


def _group_bounds(read: Read, folder: str) -> Iterator[Bound]:
    for name, used_name, prefix in _VERSIONS:
        limit = read(f"{folder}/{name}")
        if not limit.isdecimal() or int(limit) >= _UNLIMITED:
            continue
        used = read(f"{folder}/{used_name}")
        if not used.isdecimal():
            continue
        most = int(limit)
        free = most - int(used) + _cached(read(f"{folder}/memory.stat"), prefix)
        yield Bound(
            max(0, min(most, free) - min(_SPARE, most // 32)),
            f"control group {folder} ({name} {most})",
            "raise its limit (docker --memory, MemoryMax= in a unit, resources.limits.memory in "
            "Kubernetes)",
        )


def _cached(stat: str, prefix: str) -> int:
    """Return the bytes of cached files in a memory.stat: the kernel reclaims them first."""
    wanted = {f"{prefix}inactive_file", f"{prefix}active_file"}
    pairs = (line.split() for line in stat.splitlines())
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in wanted)


# -- the machine --


def _machine_bounds(read: Read) -> Iterator[Bound]:
    for line in read("/proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            free = int(value.split()[0]) << 10
            yield Bound(
                max(0, free - _SPARE),
                "this machine (MemAvailable in /proc/meminfo)",
                "end programs that hold much, or add memory",
            )


# -- the user's limit --


def own_limit(call: str) -> int | None:
    """Return what SHMND_MEMORY_LIMIT allows this process; None when it is not set."""
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return None
    match = _GIVEN.fullmatch(text)
    if match is None:
        raise error(
            Status.INVALID_PARAMETER,
            call,
            f"{LIMIT_VARIABLE} is {text!r}; it takes a number of bytes, or one with K, M, G or T "
            "(67108864, 64M)",
        )
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")


# -- all of them --


def least_bound(read: Read = read_file) -> Bound:
    """Return the bound of the machine and its control groups that leaves the least."""
    member = read("/proc/self/cgroup")
    if read is read_file:
        folders = _memory_groups(member)
    else:
        folders = tuple(str(folder) for folder in _groups(read, "memory", member))
    every = [
        *_machine_bounds(read),
        *(b for folder in folders for b in _group_bounds(read, folder)),
    ]
    unknown = Bound(1 << 62, "this machine", "")
    return min(every, default=unknown, key=lambda bound: bound.free)


_last = Bound(0, "", "")
_free = 0
"""The free bytes without those of the segments that were made since."""
_last_at = -math.inf
_least = 0
"""The free bytes down to which the last reading serves."""


def require_room(nbytes: int, held: int, call: str) -> None:
    """Raise INSUFFICIENT_RESOURCES unless `nbytes` may be made besides the `held` bytes.

    A reading that is a tenth of a second old still serves, until the segments made since are
    together no longer small against what it found: many connections do not read the same files
    again.
    """
    global _last, _free, _last_at, _least
    own = own_limit(call)
    if own is not None and held + nbytes > own:
        left = Bound(
            max(0, own - held),
            f"{LIMIT_VARIABLE} ({own}), of which this process holds {held}",
            f"raise {LIMIT_VARIABLE}",
        )
        raise no_room(nbytes, left, call)
    now = time.monotonic()
    if now - _last_at > _HOLDS or _free - nbytes < _least:
        _last, _last_at = least_bound(), now
        _free = _last.free
        _least = _free - _free // _PART
    if nbytes > _free:
        _last_at = -math.inf
        raise no_room(nbytes, _last._replace(free=_free), call)
    _free -= nbytes


def no_room(nbytes: int, bound: Bound, call: str) -> Exception:
    """Return the error of a bound that does not leave `nbytes`."""
    return error(
        Status.INSUFFICIENT_RESOURCES,
        call,
        f"{nbytes} bytes of shared memory wanted, {bound.free} free by {bound.name}; "
        f"free some, or {bound.remedy}",
    )
