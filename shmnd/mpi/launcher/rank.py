# SPDX-License-Identifier: Apache-2.0
"""One process of a job, as its launcher has it."""

import contextlib
import os
import signal
import subprocess
from typing import Final

__all__ = ["Rank"]


class Rank:
    """One process of the job."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], group: bool) -> None:
        self.number: Final = number
        self.process: Final = process
        self.descriptor: Final = os.pidfd_open(process.pid)
        self.has_group: Final = group
        """Whether it has a process group of its own. One that reads a terminal has not."""
        self.ended: float | None = None
        """When, by the clock of `time.monotonic`; None while it runs."""

    def runs(self) -> bool:
        """Return whether its process runs; one that has ended has not always been waited for."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.ended is None and os.waitid(os.P_PIDFD, self.descriptor, how) is None

    def send(self, what: signal.Signals) -> None:
        """Send a signal to the rank and, where it has a group of its own, to its children."""
        with contextlib.suppress(ProcessLookupError):
            if self.has_group:
                os.killpg(self.process.pid, what)
            elif self.process.poll() is None:
                self.process.send_signal(what)

    def end_of(self) -> str:
        """Say how it has ended."""
        code = self.process.returncode
        if code >= 0:
            return f"rank {self.number} (process {self.process.pid}) ended with exit code {code}"
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            return f"rank {self.number} (process {self.process.pid}) was killed by {name}"
        return f"rank {self.number} (process {self.process.pid}) was killed by signal {-code}"
