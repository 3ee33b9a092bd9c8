# SPDX-License-Identifier: Apache-2.0
"""The limits that control groups set for this process, of both versions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePosixPath

from .finding import Host


def cpu_limit(host: Host) -> float:
    """Give how many CPUs' time the groups allow; infinite if they do not limit it."""
    least = math.inf
    for folder in _groups(host, "cpu"):
        quota, _, period = host.read(f"{folder}/cpu.max").partition(" ")
        if not quota:
            quota = host.read(f"{folder}/cpu.cfs_quota_us")
            period = host.read(f"{folder}/cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            least = min(least, int(quota) / int(period))
    return least


def memory_limit(host: Host) -> float:
    """Give how many bytes the groups allow; infinite if they do not limit it."""
    least = math.inf
    for folder in _groups(host, "memory"):
        for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
            text = host.read(f"{folder}/{name}")
            # Version 1 writes a number that no machine has where there is no limit.
            if text.isdecimal() and int(text) < 1 << 60:
                least = min(least, int(text))
    return least


def _groups(host: Host, controller: str) -> Iterator[PurePosixPath]:
    """Go from this process's group up to the highest that can be seen."""
    for line in host.read("/proc/self/cgroup").splitlines():
        number, names, path = line.split(":", 2)
        unified = number == "0" and not names
        if not unified and controller not in names.split(","):
            continue
        for mount in host.mounts():
            shown = mount.kind == "cgroup2" if unified else controller in mount.options
            if shown and mount.kind.startswith("cgroup"):
                yield from _upwards(mount.root, mount.at, path)


def _upwards(root: str, at: str, path: str) -> Iterator[PurePosixPath]:
    group = PurePosixPath(path)
    # What lies above the folder that is mounted (as in a container) cannot be seen.
    below = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
    for folder in (below, *below.parents):
        yield PurePosixPath(at) / folder
