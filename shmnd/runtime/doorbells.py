# SPDX-License-Identifier: Apache-2.0
"""Doorbells that the broker hands to this process, and the repair when one is lost.

Every process that may have to wake this one has a channel to it: it rings at one end, we listen at
the other. The channel belongs to the two alone. The ringing side decides how long it lasts: we
listen until the other end is closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from shmnd.common.descriptors import Doorbell
from shmnd.common.interruption import pass_on

if TYPE_CHECKING:
    from shmnd.runtime.pending import PendingOperations
    from shmnd.runtime.waiting import WaitSet

__all__ = ["Doorbells"]

_PAUSE: Final = 1.0
"""Seconds until the broker is asked for a lost doorbell: there may be room for it then."""


class Doorbells:
    """Takes doorbells, and asks for another one when there was no descriptor for one.

    Until it has asked, this process polls every `_PAUSE`, since its peer may ring in vain. `ask`
    asks the broker for the doorbell of a process; it returns False when there is no broker.
    """

    def __init__(
        self, wait_set: WaitSet, pending_operations: PendingOperations, ask: Callable[[str], bool]
    ) -> None:
        self._wait_set = wait_set
        self._pending_operations = pending_operations
        self._ask = ask
        self._missing: dict[str, object] = {}  # processes, with a new object for each loss
        self._due = 0.0

    def take(self, process: str, fds: list[int]) -> None:
        """Listen to a process. Takes the descriptor, if it has arrived.

        It has an owner at once: one that a handler of a signal left open would be rung for ever.
        """
        try:
            if fds and self._wait_set.listen(Doorbell.of(fds.pop), process):
                self._missing.pop(process, None)
                return
        except OSError as exc:
            pass_on(exc)  # the system has no room for one more to be watched
        self._missing[process] = object()
        self._ask_later()

    def _ask_later(self) -> None:
        self._due = time.monotonic() + _PAUSE
        self._pending_operations.add(self)
        self._wait_set.wake_at(self._due)

    def _tick(self) -> None:
        """Ask for missing doorbells, when it is time."""
        if time.monotonic() < self._due:
            self._wait_set.wake_at(self._due)  # an earlier moment took the place of this one
            return
        for process, mark in list(self._missing.items()):
            # In this order: the handler of a signal may raise in between.
            if self._ask(process) and self._missing.get(process) is mark:
                self._missing.pop(process, None)
        if self._missing:
            self._ask_later()
        else:
            self._pending_operations.remove(self)
            if self._missing:  # by another thread, since
                self._ask_later()
