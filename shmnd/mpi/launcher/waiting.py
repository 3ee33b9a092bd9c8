# SPDX-License-Identifier: Apache-2.0
"""What a rank waits for: in words, and whether it can still come."""

import math
import time
from pathlib import Path
from typing import Final, NamedTuple

from shmnd.mpi.transport.job_memory import Wait

ENDLESS_SECONDS: Final = 1.6
"""Seconds since the end of a rank, and of a wait for it, after which that wait has no end."""
_CHECKS: Final = 3
"""Checks at which it must be so."""
_APART: Final = 0.15
"""Seconds between two of them at least: with the above two seconds as a rule."""

_STOPPED: Final = ("T", "t")

_LAST_CALL: Final = "Finalize"
"""What a rank waits in whose program has ended, and that has no part in a collective."""
_LAST_PART: Final = "a collective at Finalize"
"""What it waits in if it has: it continues that, and nothing else."""


class Waiter(NamedTuple):
    """A rank, and what it waits for."""

    process: int
    ended: float | None
    """When, by the clock of `time.monotonic`; None while it runs."""
    wait: Wait | None


def awaited(number: int, ranks: list[Waiter]) -> list[int]:
    """Return the ranks of which one can end the wait of a rank; all others, if it is for any."""
    wait = ranks[number].wait
    if wait is None or wait.peer < 0:
        return [each for each in range(len(ranks)) if each != number]
    return [min(wait.peer, len(ranks) - 1)]


def is_endless(rank: Waiter, peers: list[Waiter]) -> bool:
    """Return whether a rank waits for others that send and receive nothing for it any more.

    What they had sent is in the lanes, and would have ended the wait; a process that is stopped, or
    in a function of the program that reduces, may not have read it yet. A rank that has come to
    its end, and stays for others, begins nothing; it sends nothing but parts of collectives.
    """
    if rank.ended is not None or rank.wait is None or rank.wait.others:
        return False
    last = (_LAST_CALL,) if rank.wait.schedule else (_LAST_CALL, _LAST_PART)
    return _lasts(rank) and all(_is_gone(peer, last) for peer in peers)


class Checks:
    """Waits that were in vain at several checks.

    After the machine itself stood still, its clock has advanced, but no rank has run: a rank may
    have a message that it has not read. It reads it between two checks.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, int, float]] = {}
        """Of each rank the begin of its wait, the checks of it, and when the last one was."""

    def confirm(self, number: int, rank: Waiter, peers: list[Waiter], now: float) -> bool:
        """Check a rank. Return whether its wait is in vain, and was so at the checks before."""
        if rank.wait is None or not is_endless(rank, peers):
            self._found.pop(number, None)
            return False
        begin = rank.wait.since_ns
        known, checks, last = self._found.get(number, (begin, 0, -math.inf))
        if known != begin:
            checks, last = 0, -math.inf
        if now - last >= _APART:
            checks, last = checks + 1, now
        self._found[number] = (begin, checks, last)
        return checks >= _CHECKS


def is_at_end(rank: Waiter) -> bool:
    """Return whether a rank that runs stays only for what its program left."""
    wait = rank.wait if rank.ended is None else None
    return wait is not None and wait.call in (_LAST_CALL, _LAST_PART)


def _is_gone(peer: Waiter, last: tuple[str, ...]) -> bool:
    if peer.ended is not None:
        return time.monotonic() - peer.ended >= ENDLESS_SECONDS
    return peer.wait is not None and peer.wait.call in last and _lasts(peer)


def _lasts(rank: Waiter) -> bool:
    wait = rank.wait
    return (
        wait is not None
        and wait.idle
        and seconds(wait) >= ENDLESS_SECONDS
        and _state_of(rank.process) not in (None, *_STOPPED)
    )


def endless_words(number: int, peers: list[int], rank: Waiter) -> str:
    """Return which ranks have ended, and what another one waits for."""
    if len(peers) == 1:
        start = f"rank {peers[0]} has ended, and rank {number} waits for it in"
    else:
        start = f"all other ranks have ended, and rank {number} waits in"
    return f"{start} {words(rank.wait) if rank.wait else 'a call'}"


def is_stopped(process: int) -> bool:
    """Return whether a process is known to be stopped, by a signal or a debugger."""
    return _state_of(process) in _STOPPED


def _state_of(process: int) -> str | None:
    """Return the letter of its state, as "R" while it runs; None if it cannot be asked."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def words(wait: Wait) -> str:
    """Return it in one line, with the call, the communicator, the peer, the tag and the time."""
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
