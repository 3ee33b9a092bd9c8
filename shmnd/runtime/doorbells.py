# SPDX-License-Identifier: Apache-2.0
"""Doorbells that this process receives from the broker, and the repair of a lost one.

Every process that may have to wake this one has a channel to it: the other process rings at one
end, this one listens at the other. No third process has an end. This process listens until the
ringing end is closed.
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
    """Takes doorbells, and requests a new one when no descriptor was free for one.

    Until it has requested one, this process polls every `_PAUSE`, since its peer may ring in vain.
    `ask` requests the doorbell of a process from the broker, and returns False without a broker.
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

        The descriptor has an owner at once: if an interruption left it open, the peer would ring it
        for ever.
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
