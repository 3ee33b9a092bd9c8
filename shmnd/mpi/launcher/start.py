# SPDX-License-Identifier: Apache-2.0
"""The start of the ranks: on a terminal, a line shows how far it is where it takes long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from shmnd.mpi.launcher.memory import Memory
from shmnd.mpi.launcher.output import Output
from shmnd.mpi.launcher.processes import Processes

__all__ = ["Start", "shortened"]

_FIRST_SECONDS: Final = 5.0
"""Seconds until the first line; each further one comes after twice the time."""
_MOST_NAMED: Final = 8
"""The most ranks that are named."""


class Start:
    """Watches which ranks have initialized MPI, until all have or have ended."""

    def __init__(self, processes: Processes, memory: Memory, output: Output) -> None:
        """Begin to count the time."""
        self._processes: Final = processes
        self._memory: Final = memory
        self._output: Final = output
        self._begun: Final = time.monotonic()
        self._next: float | None = _FIRST_SECONDS if output.has_terminal() else None
        """Seconds at which the next line comes; None where there is none any more."""

    def show(self) -> None:
        """Write a line where one is due."""
        passed = time.monotonic() - self._begun
        if self._next is None or passed < self._next:
            return
        missing = [
            rank.number
            for rank in self._processes.ranks
            if rank.ended is None and not self._memory.has_attached(rank)
        ]
        if not missing:
            self._next = None
            return
        self._next = 2 * passed  # not of the last one: the launcher may have been stopped since
        self._output.say(
            f"{passed:.0f} s: {len(missing)} of {len(self._processes.ranks)} ranks have not "
            f"initialized MPI yet: {shortened(missing)}"
        )


def shortened(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: those in a row as the first and the last, some at most."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and rows[-1][-1] == number - 1:
            rows[-1][1:] = [number]
        else:
            rows.append([number])
    texts = ["-".join(map(str, row)) for row in rows]
    return ", ".join([*texts[:_MOST_NAMED], *(["..."] if len(texts) > _MOST_NAMED else [])])
