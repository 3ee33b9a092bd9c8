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
from shmnd.ring.shared_memory.bounds import Bound, least_bound, own_limit

from .finding import Finding, Host, mebibytes, ok, problem, warning

_LEAST: Final = 4 << 20
"""An adapter with a connection takes 1.6 MiB, and the first `allocate` 1 MiB or more."""
_PIECE: Final = 1 << 20
"""The smallest segment of `allocate`."""
_LITTLE: Final = 64 << 20
"""Enough for connections, little for buffers; the usual size of /dev/shm in containers."""
_LARGER: Final = (
    "mount -o remount,size=1G /dev/shm; docker run --shm-size=1g; in Kubernetes, an emptyDir with"
    " medium: Memory at /dev/shm"
)


def check(host: Host) -> Iterator[Finding]:
    """Check the bounds of segments, /dev/shm for named ones, and make a segment."""
    yield _size(least_bound(host.read))
    yield _own_limit()
    yield _named(host)
    yield _file_size()
    yield _segment()


def _size(bound: Bound) -> Finding:
    check = "shared memory size"
    found = f"{mebibytes(bound.free)} free by {bound.name}"
    if bound.free >= 1 << 60:
        return warning(
            check,
            "free memory cannot be read",
            "neither MemAvailable nor a memory control group is there to ask, so a segment that is"
            " too large meets the kernel's out-of-memory killer instead of an error",
            "mount /proc and /sys/fs/cgroup",
        )
    if bound.free < _LEAST:
        return problem(
            check,
            found,
            f"less than {mebibytes(_LEAST)} is hardly enough for one connection and its buffers;"
            " adapters and allocate() fail with INSUFFICIENT_RESOURCES",
            f"free some, or {bound.remedy}",
        )
    if bound.free <= _LITTLE:
        return warning(
            check,
            found,
            "enough for connections, little for buffers of allocate()",
            f"free some, or {bound.remedy}",
        )
    return ok(check, found)


def _own_limit() -> Finding:
    check = "SHMND_MEMORY_LIMIT"
    try:
        limit = own_limit("doctor")
    except NdError as exc:
        return problem(
            check, str(exc), "no segment can be made, so no adapter can be opened", f"unset {check}"
        )
    if limit is None:
        return ok(check, "not limited")
    if limit >= _LEAST:
        return ok(check, mebibytes(limit))
    return problem(
        check,
        mebibytes(limit),
        f"less than {mebibytes(_LEAST)} is hardly enough for one connection and its buffers",
        f"raise {check}, or unset it",
    )


def _named(host: Host) -> Finding:
    """Return the finding about /dev/shm, where only segments with a name lie."""
    check = "named shared memory"
    try:
        shm = os.statvfs(host.path("/dev/shm"))
        mode = stat.S_IMODE(host.path("/dev/shm").stat().st_mode)
    except OSError as exc:
        return warning(
            check,
            f"/dev/shm: {exc.strerror}",
            "shmnd works; segments with a name (of posix_ipc, or of multiprocessing) do not",
            "mount -t tmpfs -o size=1G,mode=1777 tmpfs /dev/shm",
        )
    free = shm.f_bavail * shm.f_frsize
    found = f"{mebibytes(free)} free in /dev/shm, of mode {mode:04o}"
    if mode & 0o1777 != 0o1777:
        return warning(
            check,
            found,
            "shmnd works, since its segments have no names; others may remove names of this"
            " program (of posix_ipc, or of multiprocessing), or none can be made",
            "chmod 1777 /dev/shm",
        )
    if free < _LEAST:
        return warning(
            check,
            found,
            "shmnd works; segments with a name (of posix_ipc, or of multiprocessing) find no room",
            f"remove what fills it, or enlarge it: {_LARGER}",
        )
    return ok(check, found)


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
    segment.close_fd()
    return ok(check, "made, committed, sealed and given back")
