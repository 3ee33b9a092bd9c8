# SPDX-License-Identifier: Apache-2.0
"""What a rank waits for: in words, and whether it can still come."""

import time
from pathlib import Path
from typing import Final

from shmnd.mpi.transport.job_memory import Wait

_VAIN_SECONDS: Final = 2.0
"""Seconds since the end of a rank, and of a wait for it, after which that wait has no end."""

_LAST_CALL: Final = "Finalize"
"""What a rank waits in whose program has ended, and that has no part in a collective."""


def in_vain(
    wait: Wait, process: int, since: float | None, peer: Wait | None, peer_process: int
) -> bool:
    """Return whether a rank waits for one alone that sends and receives nothing for it any more.

    `since`: when that rank has ended, None where it runs; then `peer` is what it waits for. What
    it had sent is in the lanes, and would have ended the wait; a process that is stopped may not
    have read it yet. A rank that has come to its end, and stays for others, begins nothing.
    """
    if wait.others or seconds(wait) < _VAIN_SECONDS or _is_stopped(process):
        return False
    if since is not None:
        return time.monotonic() - since >= _VAIN_SECONDS
    return (
        peer is not None
        and peer.call == _LAST_CALL
        and seconds(peer) >= _VAIN_SECONDS
        and not _is_stopped(peer_process)
    )


def _is_stopped(process: int) -> bool:
    """Return whether a process is stopped, or cannot be asked."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state in "tT"


def words(wait: Wait) -> str:
    """Say it in one line, with the call, the communicator, the peer, the tag and the time."""
    text = wait.call or "a call"
    if wait.comm:
        text += f" of {wait.comm}"
    if wait.call and (wait.comm or wait.peer >= 0):
        text += f" for rank {wait.peer}" if wait.peer >= 0 else " for any rank"
    if wait.tag >= 0:
        text += f", tag {wait.tag}"
    if wait.calls > 1:
        text += f", and {wait.calls - 1} more"
    return f"{text} ({seconds(wait):.1f} s)"


def seconds(wait: Wait) -> float:
    """Return how long the rank has waited."""
    return max(0.0, (time.monotonic_ns() - wait.since_ns) * 1e-9)
