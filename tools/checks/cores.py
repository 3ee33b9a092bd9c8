# SPDX-License-Identifier: Apache-2.0
"""Is there a core for each end of a connection that polls?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from .cgroup import cpu_limit
from .finding import Finding, Host, ok, warning

_WANTED: Final = 2
"""Two processes that poll for each other's messages."""
_ELSE: Final = "or sleep instead of polling: CompletionQueue.wait(), notify(), await"


def check(host: Host) -> Iterator[Finding]:
    """Count the CPUs that this process may use, and the time that its groups leave it."""
    allowed, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    found = f"{allowed} of {there} CPUs may be used"
    if allowed < _WANTED:
        yield warning(
            "CPUs",
            found,
            "an end that polls keeps the other one from running until its time slice is over, which"
            " is then the time of a message",
            f"allow two (taskset -c 0,1; docker --cpuset-cpus=0,1; CPUAffinity=0 1), {_ELSE}",
        )
    else:
        yield ok("CPUs", found)
    quota = cpu_limit(host)
    if quota < _WANTED:
        yield warning(
            "CPU time",
            f"the control group allows {quota:g} CPUs' time",
            "polling uses the time up, and then all processes of the group are stopped for the rest"
            " of the period (100 ms, as a rule)",
            f"allow two CPUs' time (docker --cpus=2; CPUQuota=200% in a unit), {_ELSE}",
        )
    elif quota < there:
        yield ok("CPU time", f"the control group allows {quota:g} CPUs' time")
    else:
        yield ok("CPU time", "not limited")
