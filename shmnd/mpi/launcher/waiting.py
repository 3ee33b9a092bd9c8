# SPDX-License-Identifier: Apache-2.0
"""What a rank waits for: in words, and whether it can still come."""

import time
from pathlib import Path
from typing import Final

from shmnd.mpi.transport.job_memory import Wait

_VAIN_SECONDS: Final = 2.0
"""Seconds that a rank waits for one that has ended before the wait counts as without an end."""


def in_vain(wait: Wait, process: int, ended: set[int]) -> bool:
    """Return whether a rank waits for one operation with a rank that has ended.

    What that rank had sent is in the lanes, and would have ended the wait; a process that is
    stopped may not have read it yet.
    """
    if wait.calls != 1 or wait.peer not in ended or seconds(wait) < _VAIN_SECONDS:
        return False
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "tT"


def words(wait: Wait) -> str:
    """Say it in one line, with the call, the communicator, the peer, the tag and the time."""
    text = wait.call or "a call"
    if wait.comm:
        text += f" of {wait.comm}"
    if wait.call and wait.comm:
        text += f" for rank {wait.peer}" if wait.peer >= 0 else " for any rank"
    if wait.tag >= 0:
        text += f", tag {wait.tag}"
    if wait.calls > 1:
        text += f", and {wait.calls - 1} more"
    return f"{text} ({seconds(wait):.1f} s)"


def seconds(wait: Wait) -> float:
    """Return how long the rank has waited."""
    return max(0.0, (time.monotonic_ns() - wait.since_ns) * 1e-9)
