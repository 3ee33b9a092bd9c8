# SPDX-License-Identifier: Apache-2.0
"""What a rank waits for, in words."""

import time

from shmnd.mpi.transport.job_memory import Wait


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
