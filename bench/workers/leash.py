# SPDX-License-Identifier: Apache-2.0
"""Tie a process to the one that started it, so that even a killed benchmark leaves none behind.

As a script it does so for any program: `python leash.py PARENT CPUS PROGRAM [ARGUMENT...]`.
The link outlives exec(). It stands alone (no import of its package) for that reason.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1


def hold(parent: int | None) -> None:
    """Ask the kernel to end this process when its parent dies.

    With `parent` given, end at once when that process is no longer the parent: it died before
    this call.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if parent is not None and os.getppid() != parent:
        sys.exit("the process that started this one is gone")


def pin(cpus: Iterable[int]) -> None:
    """Run on these CPUs only; none means wherever the kernel likes."""
    wanted = set(cpus)
    if wanted:
        os.sched_setaffinity(0, wanted)


def parse_cpus(text: str) -> list[int]:
    """Return a list of CPU numbers from text as `0,1`; empty text is an empty list."""
    return [int(part) for part in text.split(",") if part]


if __name__ == "__main__":
    hold(int(sys.argv[1]))
    pin(parse_cpus(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
