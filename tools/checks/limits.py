# SPDX-License-Identifier: Apache-2.0
"""The limits of this process that a program with many peers may meet.

RLIMIT_MEMLOCK is not among them: registering memory locks nothing.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Final

from .finding import Finding, Host, mebibytes, ok, problem, warning

_ADAPTER, _PEER = 19, 3
"""Descriptors of a process with an adapter and its first peer, and of each further peer."""
_FEW: Final = 256
_SPARE: Final = 64 << 20
"""Address space for adapter, connections and a few buffers."""


def check(host: Host) -> Iterator[Finding]:
    """Check descriptors and address space."""
    yield _descriptors()
    yield _address_space(host)


def _descriptors() -> Finding:
    check = "RLIMIT_NOFILE"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return ok(check, "not limited")
    peers = max(0, soft - _ADAPTER) // _PEER + (soft >= _ADAPTER)
    found = f"{soft} descriptors (hard limit {hard}): peers in at most {peers} processes"
    meaning = (
        f"an adapter and its first peer take {_ADAPTER} descriptors, each further process {_PEER};"
        " beyond that, calls fail with INSUFFICIENT_RESOURCES"
    )
    remedy = "ulimit -n 4096; LimitNOFILE=4096 in a unit; docker --ulimit nofile=4096"
    if soft < 2 * _ADAPTER:
        return problem(check, found, meaning, remedy)
    return warning(check, found, meaning, remedy) if soft < _FEW else ok(check, found)


def _address_space(host: Host) -> Finding:
    check = "RLIMIT_AS"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return ok(check, "not limited")
    pages = host.read("/proc/self/statm").split(maxsplit=1)
    spare = limit - int(pages[0]) * resource.getpagesize() if pages else limit
    found = f"{mebibytes(limit)}, of which {mebibytes(max(0, spare))} are left in this process"
    if spare >= _SPARE:
        return ok(check, found)
    return warning(
        check,
        found,
        "each segment is mapped, one's own and those of peers; without room, calls fail with"
        " INSUFFICIENT_RESOURCES",
        "ulimit -v unlimited; LimitAS=infinity in a unit",
    )
