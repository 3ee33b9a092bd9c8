# SPDX-License-Identifier: Apache-2.0
"""How large the parts of a job's memory are, by the number of its ranks."""

import resource
from pathlib import Path

__all__ = ["arena_bytes", "fits_in_file", "lane_bytes"]


def lane_bytes(ranks: int) -> int:
    """Return the size of one lane: small where there are many."""
    for most, size in ((4, 1 << 18), (8, 1 << 17), (16, 1 << 16)):
        if ranks <= most:
            return size
    return 1 << 15


def arena_bytes(ranks: int) -> int:
    """Return the size of the arena of one rank; 0 where sparse memory may be refused later.

    Its pages cost memory only when an array uses them. A limit on address space, or a kernel that
    commits memory strictly, would end a rank in the midst of its work.
    """
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    try:
        strict = Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    except OSError:
        strict = False
    if limited or strict or ranks == 1:
        return 0
    return (1 << 30) if ranks <= 16 else (1 << 28) if ranks <= 64 else (1 << 26)


def fits_in_file(size: int) -> bool:
    """Return whether a file of this process may be so long: the memory of a job is one."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return limit == resource.RLIM_INFINITY or size <= limit
