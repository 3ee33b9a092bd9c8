# SPDX-License-Identifier: Apache-2.0
"""The processes of a job: how they start, signals to all of them, and what they leave.

They die with the launcher: the kernel sends SIGKILL; to one that a shell has started, for the end
of a pipe.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
from typing import Final

from shmnd.mpi.communicators import agreement
from shmnd.mpi.launcher import environment
from shmnd.mpi.launcher.options import JobOptions
from shmnd.mpi.launcher.rank import Guard, Rank, before_program

__all__ = ["Processes"]


class Processes:
    """The ranks of one job, in the order of their numbers, as far as they have been started."""

    def __init__(self, options: JobOptions, selector: selectors.BaseSelector) -> None:
        self.ranks: Final[list[Rank]] = []
        self.running: Final[set[Rank]] = set()
        self.cores: Final = sorted(os.sched_getaffinity(0))
        self.crowded: Final = options.ranks > len(self.cores)
        """Whether there are more ranks than cores."""
        self._options: Final = options
        self._selector: Final = selector
        self._life, self._end_of_life = os.pipe()
        """A pipe that ends with this process, however that does: what ranks under a shell watch."""
        self._guards: Final[list[Guard]] = []

    def start(self, number: int, memory: int, agreements: socket.socket | None) -> Rank:
        """Start a rank, which inherits the descriptor of the memory; return it.

        With recovery it inherits its end of a socket, too.
        """
        options = self._options
        own_group = number > 0 or not os.isatty(0)
        pipe = subprocess.PIPE if options.prefix else None
        variables = environment.of_rank(options, number, memory, self._life)
        inherited = [memory, self._life]
        if agreements is not None:
            variables[agreement.VARIABLE] = str(agreements.fileno())
            inherited.append(agreements.fileno())
        guard = Guard(self._life)
        self._guards.append(guard)
        inherited += guard.descriptors()
        process = subprocess.Popen(
            options.command,
            cwd=options.folder,
            env=variables,
            stdin=None if number == 0 else subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            pass_fds=inherited,
            preexec_fn=before_program(os.getpid(), own_group, guard, self._core(number)),
        )
        rank = Rank(number, process, own_group)
        self.ranks.append(rank)
        self.running.add(rank)
        self._selector.register(rank.descriptor, selectors.EVENT_READ, rank)
        return rank

    def _core(self, number: int) -> int | None:
        """Return the core of a rank that is bound to one."""
        bind = self._options.bind
        if bind == "core" or (bind is None and not self.crowded):
            return self.cores[number % len(self.cores)]
        return None

    def take_out(self, rank: Rank) -> None:
        """Watch a rank no longer, which has ended."""
        self._selector.unregister(rank.descriptor)
        self.running.discard(rank)

    def send(self, how: signal.Signals, *, ended: bool = False) -> None:
        """Send it to all that runs, and with `ended` to what ended ranks have started, too."""
        for rank in self.ranks if ended else self.running:
            rank.send(how)

    def interrupt(self, *, has_group: bool) -> None:
        """Send SIGINT to the ranks with a process group of their own, or to those without."""
        for rank in self.ranks:
            if rank.has_group == has_group:
                rank.send(signal.SIGINT)

    def look_at_groups(self) -> None:
        """Find out which groups of ended ranks have ended, too. To be called often."""
        for rank in self.ranks:
            rank.look_at_group()

    def have_descendants(self) -> bool:
        """Return whether something that the ranks have started runs yet."""
        return any(rank.has_descendants() for rank in self.ranks)

    def close(self) -> None:
        """Wait for all ranks, and close what belongs to them."""
        for rank in self.ranks:
            with rank.process:  # waits for it, and closes its pipes
                os.close(rank.descriptor)
        for guard in self._guards:
            guard.end()
        os.close(self._life)
        os.close(self._end_of_life)
