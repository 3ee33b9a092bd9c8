# SPDX-License-Identifier: Apache-2.0
"""Join the next broker when one is gone, without a call of the program.

Other processes must find a process that listens, also while it makes no call, so such a process
starts a broker where none runs. Any other process only joins a broker that is there, so that tools
and a restarted broker see it soon. Until there is one, it tries to connect once a second.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from shmnd.common.interruption import pass_on
from shmnd.status import NdError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmnd.runtime.waiting import WaitSet

__all__ = ["Reconnect"]

_PAUSE: Final = 1.0
"""Seconds between two attempts."""


class Reconnect:
    """Attempts, one at a time, each in a thread of its own.

    In the thread of a caller, a message would have to wait for a broker that is slow or stopped.
    """

    def __init__(
        self, reconnect: Callable[[], None], broker_runs: Callable[[], bool], wait_set: WaitSet
    ) -> None:
        self._reconnect = reconnect
        self._broker_runs = broker_runs
        self._wait_set = wait_set
        self.under_way = False
        self.not_before = 0.0
        self.run_in_thread: Callable[[Callable[[], None]], None] = _in_a_thread

    def attempt(self, *, start: bool) -> None:
        """Begin an attempt, unless one is under way or was just made.

        Without `start` only a broker that is there already is joined.
        """
        if self.under_way:
            return
        now = time.monotonic()
        if now < self.not_before:
            self._wait_set.wake_at(self.not_before)  # an earlier moment took the place of this one
            return
        self.not_before = now + _PAUSE
        self._wait_set.wake_at(self.not_before)  # to try again, should it fail
        if not start and not self._broker_runs():
            return
        self.under_way = True
        try:
            self.run_in_thread(self._attempt_now)
        except BaseException as exc:
            self.under_way = False
            if not isinstance(exc, RuntimeError):
                raise  # what a handler of a signal raised
            # else the interpreter is ending, or has no room for a thread now

    def _attempt_now(self) -> None:
        try:
            self._reconnect()
        except (NdError, OSError, ValueError) as exc:
            pass_on(exc)  # tried again later; or the progress engine was closed meanwhile
        finally:
            self.under_way = False
        self._wait_set.ring()

    def close_in_child(self) -> None:
        """Forget an attempt under way after fork: it is the parent's."""
        self.under_way = False


def _in_a_thread(attempt: Callable[[], None]) -> None:
    threading.Thread(target=attempt, name="shmnd", daemon=True).start()
