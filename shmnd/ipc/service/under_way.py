# SPDX-License-Identifier: Apache-2.0
"""What a client knows of its requests under way, so that no call has to check each of them.

There may be thousands, and each answer is followed by a check of which requests are lost.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Final

from shmnd.common.interruption import pass_on

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterator

    from shmnd.ipc.queue.queue_core import QueueCore
    from shmnd.ipc.service.pending import Pending

__all__ = ["UNCLAIMED", "UnderWay"]

UNCLAIMED: Final = 2.0
"""Seconds after which a request that was taken and that no living server claims is lost."""
_MOST_CHECKED: Final = 64
"""Requests of which it is asked at once whether a server took them: in the order in which they were
put, as they are taken. Other processes may have put some between them."""


class UnderWay:
    """The requests of one client by what the client is still to learn of them.

    Numbers of requests that have ended may stay in it: they are left out when they are found.
    """

    def __init__(
        self,
        requests: QueueCore,
        answers: QueueCore,
        pending: weakref.WeakValueDictionary[int, Pending],
    ) -> None:
        self._requests: Final = requests
        self._answers: Final = answers
        self._pending: Final = pending
        self.unsaid: Final[OrderedDict[int, int]] = OrderedDict()
        """Those that were put and that no server has claimed, in their order: where."""
        self.servers: Final[set[tuple[int, int]]] = set()
        """The member numbers and processes of those that took one."""
        self.unseen: Final[OrderedDict[int, None]] = OrderedDict()
        """Those of which something came since the program, or `ready`, asked."""

    def entry_of(self, pending: Pending) -> tuple[OrderedDict[int, int], int]:
        """Return where the queue enters the position of a request, in the step that puts it.

        Afterwards another thread may have put one, or a handler of a signal in this one.
        """
        return self.unsaid, pending._number

    def take_unseen(self) -> bool:
        """Return whether something came for which no call waits, and forget it.

        The program may never ask for it.
        """
        numbers = list(self.unseen)
        found = any(map(self._has_no_call, numbers))
        for number in numbers:
            self.unseen.pop(number, None)
        return found

    def has_unseen(self) -> bool:
        """Return whether something came for which no call waits."""
        while True:
            try:
                return any(map(self._has_no_call, self.unseen))
            except RuntimeError as exc:
                pass_on(exc)  # else another thread has added one meanwhile

    def _has_no_call(self, number: int) -> bool:
        pending = self._pending.get(number)
        return pending is not None and not pending._waiting

    def _first(self) -> list[tuple[int, int]]:
        while True:
            try:
                return list(islice(self.unsaid.items(), _MOST_CHECKED))
            except RuntimeError as exc:
                pass_on(exc)  # else another thread has put one meanwhile

    def _unclaimed(self) -> Iterator[tuple[int, Pending]]:
        """Return the first requests that no server has claimed, and where they were put."""
        for number, pos in self._first():
            pending = self._pending.get(number)
            if pending is None or pending._over or pending._server is not None:
                self.unsaid.pop(number, None)
            else:
                yield pos, pending

    def lost(self) -> tuple[set[tuple[int, int]], list[Pending]]:
        """Return the servers that died, and requests of others that are lost.

        A server took these, and did not say so before it died, or in time.
        """
        now = time.monotonic()
        dead = {each for each in self.servers.copy() if not self._answers.lives_as(*each)}
        lost = []
        for pos, pending in self._unclaimed():
            if not self._requests.passed(pos):
                break
            pending._unclaimed = pending._unclaimed or now
            taker = self._requests.taker(pos)
            if now - pending._unclaimed > UNCLAIMED or (
                taker >= 0 and not self._requests.lives(taker)
            ):
                lost.append(pending)
        return dead, lost

    def until_lost(self) -> float:
        """Return the seconds after which a request that was taken counts as lost.

        Also where all were claimed: one that is sent meanwhile wakes no call that sleeps, and one
        call at a time takes for all.
        """
        now = time.monotonic()
        for _, pending in self._unclaimed():
            taken = pending._unclaimed
            return max(0.01, taken + UNCLAIMED - now) if taken else UNCLAIMED
        return UNCLAIMED
