# SPDX-License-Identifier: Apache-2.0
"""The waits of the ranks of a job: reports of them, and an end of those that are in vain."""

from __future__ import annotations

import time
from typing import Final

from shmnd.mpi.launcher import waiting
from shmnd.mpi.launcher.memory import Memory
from shmnd.mpi.launcher.output import Output
from shmnd.mpi.launcher.processes import Processes
from shmnd.mpi.launcher.rank import Rank
from shmnd.mpi.launcher.recovery import Recovery

__all__ = ["Waits"]

_PAUSE: Final = 0.025
"""Seconds between two questions of what they do."""
_MOST_REPORTED: Final = 16
"""The most ranks whose waits are reported."""


class Waits:
    """What the ranks of one job wait for."""

    def __init__(self, memory: Memory, processes: Processes, output: Output) -> None:
        self._memory: Final = memory
        self._processes: Final = processes
        self._output: Final = output
        self._checks: Final = waiting.Checks()
        self._released: Final[dict[int, float]] = {}
        self._verdicts: Final[dict[int, str]] = {}

    def end_endless(self, recovery: Recovery | None) -> bool:
        """End waits for a rank that makes no call any more; return whether the job has to end.

        A rank that stays at its end is released first: its exit code is that of the job, unless it
        is 0. A job with recovery continues where that rank has ended: to the others it is dead.
        """
        processes = self._processes.ranks
        ranks = [
            waiting.Waiter(
                self._memory.process_of(each),
                self._released.get(each.number) if each.ended is None else each.ended,
                self._memory.wait_of(each),
            )
            for each in processes
        ]
        now = time.monotonic()
        for number, rank in enumerate(ranks):
            peers = waiting.awaited(number, ranks)
            if not self._checks.confirm(number, rank, [ranks[peer] for peer in peers], now):
                continue
            words = waiting.endless_words(number, peers, rank)
            if recovery is not None and any(processes[peer].ended for peer in peers):
                self._output.say(f"{words}: the call fails")
                recovery.give_up(peers)
                continue
            verdict = f"{words}: the job cannot continue, and is ended"
            if self._release({number, *peers}, ranks):
                self._verdicts.update({number: verdict} if waiting.is_at_end(rank) else {})
                return False
            self._output.say(verdict)
            return True
        return False

    def _release(self, numbers: set[int], ranks: list[waiting.Waiter]) -> bool:
        """Release those that stay at their end; return whether there are any."""
        staying = {number for number in numbers if waiting.is_at_end(ranks[number])}
        for number in staying:
            self._released[number] = time.monotonic()
            self._memory.release(number)
        return bool(staying)

    def was_released(self, rank: Rank) -> bool:
        """Return whether a rank ended because its wait was in vain."""
        return rank.number in self._released

    def verdict_of(self, rank: Rank) -> str | None:
        """Return what the launcher says where a rank that was released ends well, if anything."""
        return self._verdicts.get(rank.number)

    def report(self, patience: float) -> None:
        """Print what the ranks that run wait for, as far as they do within some seconds or end."""
        last = time.monotonic() + patience
        running = sorted(self._processes.running, key=lambda rank: rank.number)
        waits = [self._memory.wait_of(rank) for rank in running]
        while time.monotonic() < last and any(
            wait is None and rank.runs() for wait, rank in zip(waits, running, strict=True)
        ):
            time.sleep(_PAUSE)
            waits = [self._memory.wait_of(rank) for rank in running]
        for wait, rank in list(zip(waits, running, strict=True))[:_MOST_REPORTED]:
            did = "did not wait" if rank.runs() else "ended meanwhile"
            if wait is not None:
                did = f"waited in {waiting.words(wait)}"
            if rank.runs() and waiting.is_stopped(self._memory.process_of(rank)):
                did = "is stopped" if wait is None else f"{did}, and is stopped"
            self._output.say(f"rank {rank.number} {did}")
