# SPDX-License-Identifier: Apache-2.0
"""When the broker runs: at once, or, while many connections are made, behind their processes.

A message wakes the broker. Under the usual policy it then often takes the processor from the
process that has sent the message and is about to send the next one, so that each message costs two
switches and a turn of its own. Under SCHED_BATCH the woken broker waits until a processor is free,
or a turn of another process is over: by then there are many messages, and it takes them together.
That takes a third off the time of hundreds of connections, but it would delay a single one by
milliseconds on a machine whose processors are all in use. So the policy follows the number of
connections that are being made.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["MANY", "Scheduling"]

MANY: Final = 16
"""Undecided connections from which on some delay of each is worth while."""
_QUIET: Final = 0.01
"""Seconds without a change, after which undecided connections wait for a program."""


class Scheduling:
    """The policy of the broker's process, if it has the usual one. Others are left alone."""

    def __init__(self) -> None:
        try:
            self._adjustable = os.sched_getscheduler(0) == os.SCHED_OTHER
        except OSError:
            self._adjustable = False  # a sandbox forbids the question
        self._changes = 0
        self.until = 0.0
        """When the usual policy is due again; 0.0: it is in force."""

    def follow(self, undecided: int, changes: int, now: float) -> None:
        """Choose the policy by the number of undecided connections and the count of changes."""
        if undecided >= MANY and changes != self._changes:
            if not self.until:
                self._set(os.SCHED_BATCH)
            self.until = now + _QUIET
        elif self.until and (undecided < MANY or now >= self.until):
            self._set(os.SCHED_OTHER)
            self.until = 0.0
        self._changes = changes

    def _set(self, policy: int) -> None:
        try:
            if self._adjustable:
                os.sched_setscheduler(0, policy, os.sched_param(0))
        except OSError:
            self._adjustable = False  # it forbids the change
