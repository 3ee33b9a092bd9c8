# SPDX-License-Identifier: Apache-2.0
"""The end of a job: its exit code, the signals to its ranks, and the time that these have."""

from __future__ import annotations

import signal
import time
from typing import Final

from shmnd.mpi.launcher import signals
from shmnd.mpi.launcher.processes import Processes

__all__ = ["Ending"]

_GRACE: Final = 2.0
"""Seconds that ranks have between SIGTERM and SIGKILL."""


class Ending:
    """How one job ends, as far as that is known."""

    def __init__(self, processes: Processes) -> None:
        self._processes: Final = processes
        self.code = 0
        """The exit code of a job that fails; 0: it does not."""
        self.hurries = False
        """Whether the end of the job waits for no reader: by a signal, or a limit of time."""
        self._last: float | None = None
        """When the time is over that ranks have, by the clock of `time.monotonic`."""
        self._interrupts = 0
        self._repeat: float | None = None
        """When a rank in the group of the launcher gets SIGINT, if the terminal has not sent it."""

    def has_begun(self) -> bool:
        """Return whether the job ends: it fails, or all its ranks have ended."""
        return self._last is not None

    def is_over(self) -> bool:
        """Return whether the time is over that the ranks, and what they have started, have."""
        return self._last is not None and time.monotonic() > self._last

    def begin(self) -> None:
        """Begin the end of a job whose ranks have all ended."""
        if self._last is None:
            self._last = time.monotonic() + _GRACE

    def fail(self, code: int) -> None:
        """Have the job fail with this exit code, if it does not yet, and end the ranks."""
        self.code = self.code or code
        self._end_others(signal.SIGTERM)

    def fail_in_haste(self, code: int) -> None:
        """Have the job fail without a wait for readers of the output."""
        self.hurries = True
        self.fail(code)

    def _end_others(self, how: signal.Signals) -> None:
        self._last = time.monotonic() + _GRACE
        self.send(how)

    def send(self, how: signal.Signals) -> None:
        """Send a signal to all that runs; once the job fails, also to what ended ranks started."""
        self._processes.send(how, ended=self.code != 0)

    def has_more_to_end(self) -> bool:
        """Return whether something that is to end with the job, as it fails, runs yet."""
        return self.code != 0 and self._processes.have_descendants()

    def advance(self) -> bool:
        """Send the signals whose time has come; return whether that of the ranks is over."""
        if self._repeat is not None and time.monotonic() > self._repeat:
            self._repeat = None
            self._processes.interrupt(has_group=False)
        over = self.is_over()
        if over:
            self.send(signal.SIGKILL)
        return over

    # -- signals to the launcher --

    def take_signals(self) -> signals.Taken:
        """Let signals of the launcher end the job, stop it, or reach the ranks (`signals.take`)."""
        return signals.take(
            {
                signal.SIGINT: self._interrupted,
                signal.SIGTSTP: self._stopped,
                **dict.fromkeys(signals.ENDS, self._terminated),
                **dict.fromkeys(signals.PASSED_ON, self._passed_on),
            }
        )

    def _interrupted(self, *_: object) -> None:
        """End the job as Ctrl-C does, which the terminal itself sends to the launcher's group."""
        self._interrupts += 1
        self.hurries = True
        self.code = self.code or 130
        if self._interrupts > 1:
            self._end_others(signal.SIGKILL)
            return
        now = time.monotonic()
        self._last, self._repeat = now + _GRACE, now + _GRACE / 2
        self._processes.interrupt(has_group=True)

    def _terminated(self, number: int, _: object) -> None:
        self.fail_in_haste(128 + number)

    def _passed_on(self, number: int, _: object) -> None:
        self._processes.send(signal.Signals(number))

    def _stopped(self, number: int, _: object) -> None:
        """Stop the ranks, which have process groups of their own, and continue them."""
        self._passed_on(number, None)
        signals.stop_here()
        self._passed_on(signal.SIGCONT, None)
