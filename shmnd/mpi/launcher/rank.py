# SPDX-License-Identifier: Apache-2.0
"""One process of a job, as its launcher has it, and the group of what it has started."""

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shmnd.common.native import die_with_parent

__all__ = ["Guard", "Rank", "before_program"]


class Guard:
    """Ends the process group of a rank with the launcher, also where that is killed.

    The kernel sends SIGKILL to the group when the pipe ends that the launcher holds open. The rank
    inherits the descriptor: of a process that is killed, it may be closed before the pipe ends.
    The group is remembered as such, so that a later one of the same number gets no signal.
    """

    def __init__(self, life: int) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):  # there is no /proc
            self._descriptor = os.open(f"/proc/self/fd/{life}", os.O_RDONLY | os.O_NONBLOCK)

    def descriptors(self) -> list[int]:
        """Return what the rank has to inherit."""
        return [self._descriptor] if self._descriptor >= 0 else []

    def begin(self) -> None:
        """Watch the group of the calling process."""
        for descriptor in self.descriptors():
            fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)

    def end(self) -> None:
        """Leave the group alone, also where a process of it has inherited the descriptor."""
        for descriptor in self.descriptors():
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK)
            os.close(descriptor)
        self._descriptor = -1


class Rank:
    """One process of the job."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], group: bool) -> None:
        self.number: Final = number
        self.process: Final = process
        self.descriptor: Final = os.pidfd_open(process.pid)
        self.has_group: Final = group
        """Whether it has a process group of its own. One that reads a terminal has not."""
        self._is_empty = not group
        """Whether its group has ended. From then on the number may be that of another group."""
        self.ended: float | None = None
        """When, by the clock of `time.monotonic`; None while it runs."""

    def runs(self) -> bool:
        """Return whether its process runs; one that has ended has not always been waited for."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.ended is None and os.waitid(os.P_PIDFD, self.descriptor, how) is None

    def send(self, what: signal.Signals) -> None:
        """Send a signal to the rank and, where it has a group of its own, to its children.

        Processes of another user get none, such as a program that has changed its user.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._is_empty:
                os.killpg(self.process.pid, what)
            elif self.process.poll() is None:
                self.process.send_signal(what)

    def look_at_group(self) -> None:
        """Find out whether the group of a rank that has ended did so, too. To be called often."""
        try:
            if not self._is_empty and self.ended is not None:
                os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            self._is_empty = True

    def has_descendants(self) -> bool:
        """Return whether a process of its group runs. A zombie does not."""
        self.look_at_group()
        return not self._is_empty and any(map(self._has, Path("/proc").glob("[0-9]*/stat")))

    def _has(self, process: Path) -> bool:
        with contextlib.suppress(OSError):
            state, _, group = process.read_text().rpartition(")")[2].split()[:3]
            return int(group) == self.process.pid and state not in "ZX"
        return False

    def end_of(self) -> str:
        """Return how it has ended."""
        code = self.process.returncode
        if code >= 0:
            return f"rank {self.number} (process {self.process.pid}) ended with exit code {code}"
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"rank {self.number} (process {self.process.pid}) was killed by {name}"
        return f"rank {self.number} (process {self.process.pid}) was killed by signal {-code}"


def before_program(
    launcher: int, own_group: bool, guard: Guard, core: int | None
) -> Callable[[], None]:
    """Return what a rank does before its program: it dies with the launcher, on its core."""

    def prepare() -> None:
        die_with_parent(signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)
        if own_group:
            os.setpgid(0, 0)
            guard.begin()
            # The group is a background one of the terminal, for all that the job runs in the
            # foreground: a rank that reads /dev/tty or, behind `stty tostop`, writes there would
            # stop without end. Now the first is an error, and the second works.
            signal.signal(signal.SIGTTIN, signal.SIG_IGN)
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        if core is not None:
            os.sched_setaffinity(0, {core})

    return prepare
