# SPDX-License-Identifier: Apache-2.0
"""The objects that every poll visits: those with pending operations, and unfinished ends."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Sized
from typing import TYPE_CHECKING, Final

from shmnd.ring.process.waiting import LONGEST_SLEEP
from shmnd.runtime.polling import PendingCore

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import Moving, Ticker
    from shmnd.runtime.waiting import WaitSet

__all__ = ["PendingOperations"]


class PendingOperations(PendingCore):
    """The pending operations of one progress engine."""

    def __init__(self, wait_set: WaitSet) -> None:
        self._wait_set = wait_set
        self.links: Final[Sized] = self._links
        self.contents: Final[list[Sized]] = [
            self._tickers,
            self._unfinished,
            self._links,
            self._polled_next,
            self._put_off,
        ]
        """All tables of pending operations, for a poll that checks whether there are any."""

    def __len__(self) -> int:
        return sum(map(len, self.contents))

    def add_link(self, obj: Ticker, pair: Moving) -> None:
        """Let an object be polled once its queue pair's link shows a change. Both are held weakly.

        The peer rings when its side of the link changes; a poll of the queue pair finds it, too.
        """
        key = id(obj)
        # No function in Python: a handler that raised as it began would leave the entry.
        ref = weakref.ref(obj, functools.partial(self._links.pop, key))
        self._links[key] = ref, weakref.ref(pair), pair._state
        self._wait_set.wake_at(time.monotonic() + LONGEST_SLEEP)

    def close(self) -> None:
        """Continue the ends that were put off, and call each unfinished step a last time."""
        self._finish()
        for step in list(self._unfinished.values()):
            step()
        self._unfinished.clear()

    def close_in_child(self) -> None:
        """Forget all pending operations after fork: they are the parent's."""
        self._unfinished.clear()
        self._tickers.clear()
        self._links.clear()
        self._polled_next.clear()
        self._put_off.clear()
