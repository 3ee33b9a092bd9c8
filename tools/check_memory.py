# SPDX-License-Identifier: Apache-2.0
"""Is there room for shared memory, and what else limits it?"""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from typing import Final

from shmnd import NdError
from shmnd.ring import Segment

from .cgroup import memory_limit
from .finding import Finding, Host, mebibytes, ok, problem, warning

_LEAST: Final = 4 << 20
"""An adapter with a connection takes 1.6 MiB, and the first `allocate` 1 MiB or more."""
_PIECE: Final = 1 << 20
"""The smallest segment of `allocate`."""
_CONTAINER: Final = 64 << 20
"""What containers get when nobody says otherwise."""
_LARGER: Final = (
    "mount -o remount,size=1G /dev/shm; docker run --shm-size=1g; in Kubernetes, an emptyDir with"
    " medium: Memory at /dev/shm"
)


def look(host: Host) -> Iterator[Finding]:
    """Look at /dev/shm, at other limits to its memory, and make a segment."""
    mounted = [mount.kind for mount in host.mounts() if mount.at == "/dev/shm"]
    try:
        shm = os.statvfs(host.path("/dev/shm"))
        mode = host.path("/dev/shm").stat().st_mode
    except OSError as exc:
        yield warning(
            "shared memory size",
            f"/dev/shm: {exc.strerror}",
            "its size is the limit of what processes share; without it, nothing limits them",
            "mount -t tmpfs -o size=1G,mode=1777 tmpfs /dev/shm",
        )
    else:
        yield _size(shm.f_blocks * shm.f_frsize, shm.f_bavail * shm.f_frsize)
        yield _kind(mounted[-1] if mounted else "")
        yield _mode(mode)
        yield _group(host, shm.f_blocks * shm.f_frsize)
    yield _file_size()
    yield _segment()


def _size(total: int, free: int) -> Finding:
    check = "shared memory size"
    found = f"{mebibytes(free)} free of {mebibytes(total)} in /dev/shm"
    if free < _LEAST:
        return problem(
            check,
            found,
            f"less than {mebibytes(_LEAST)} is hardly enough for one connection and its buffers;"
            " adapters and allocate() fail with INSUFFICIENT_RESOURCES",
            f"remove what fills it, or enlarge it: {_LARGER}",
        )
    if free <= _CONTAINER:
        return warning(
            check,
            found,
            "enough for connections, little for buffers of allocate(); what containers get when"
            " nobody says otherwise",
            f"enlarge it: {_LARGER}",
        )
    return ok(check, found)


def _kind(kind: str) -> Finding:
    check = "shared memory kind"
    if kind == "tmpfs":
        return ok(check, "/dev/shm is a tmpfs")
    return warning(
        check,
        f"/dev/shm is {f'a {kind}' if kind else 'an ordinary folder'}",
        "its free space is taken for the limit of shared memory, and says nothing about memory",
        "mount -t tmpfs -o size=1G,mode=1777 tmpfs /dev/shm",
    )


def _mode(mode: int) -> Finding:
    check = "shared memory mode"
    found = f"/dev/shm has mode {stat.S_IMODE(mode):04o}"
    if mode & 0o1777 == 0o1777:
        return ok(check, found)
    return warning(
        check,
        found,
        "segments have no names, so shmnd works; what else of the Python program shares memory"
        " (multiprocessing) may not, or others can remove its names",
        "chmod 1777 /dev/shm",
    )


def _group(host: Host, total: int) -> Finding:
    check = "memory of the control group"
    limit = memory_limit(host)
    if limit == float("inf"):
        return ok(check, "not limited")
    found = f"{mebibytes(int(limit))}, where /dev/shm has {mebibytes(total)}"
    if limit >= total:
        return ok(check, found)
    return warning(
        check,
        found,
        "shared memory counts for the group, so a segment that /dev/shm has room for can meet the"
        " kernel's out-of-memory killer instead of an error",
        "make /dev/shm smaller than the limit, or the limit larger (docker --memory, MemoryMax=)",
    )


def _file_size() -> Finding:
    check = "RLIMIT_FSIZE"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return ok(check, "not limited")
    judge = problem if limit < _PIECE else warning
    return judge(
        check,
        mebibytes(limit),
        f"it counts for shared memory too: allocate() makes segments of {mebibytes(_PIECE)} and"
        " more, and none can be larger than the limit",
        "ulimit -f unlimited; LimitFSIZE=infinity in a unit",
    )


def _segment() -> Finding:
    check = "a segment"
    try:
        segment = Segment.create(4096, label="doctor", call="doctor")
    except NdError as exc:
        return problem(
            check,
            str(exc),
            "a segment of one page could not be made, so no adapter can be opened",
            "see the findings about shared memory; a seccomp filter must allow memfd_create,"
            " fallocate and F_ADD_SEALS",
        )
    segment.close()
    return ok(check, "made, committed, sealed and given back")
