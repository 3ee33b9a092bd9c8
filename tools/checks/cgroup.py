# SPDX-License-Identifier: Apache-2.0
"""The processor time that control groups allow this process, of both versions."""

from __future__ import annotations

import math

from shmnd.ring.shared_memory.bounds import groups

from .finding import Host


def cpu_limit(host: Host) -> float:
    """Return how many CPUs' time the groups allow; infinite if they do not limit it."""
    least = math.inf
    for folder in groups(host.read, "cpu"):
        quota, _, period = host.read(f"{folder}/cpu.max").partition(" ")
        if not quota:
            quota = host.read(f"{folder}/cpu.cfs_quota_us")
            period = host.read(f"{folder}/cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            least = min(least, int(quota) / int(period))
    return least
