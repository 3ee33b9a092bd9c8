# SPDX-License-Identifier: Apache-2.0
"""What is looked at again at every look: objects with affairs pending, and what ends by itself."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shmnd.protocols import Ticker
    from shmnd.watch import Watch

__all__ = ["LONGEST_SLEEP", "Affairs"]

LONGEST_SLEEP: Final = 1.0
"""Seconds after which a sleeper looks anyway; everything that happens wakes it before."""
_LINGER_PAUSE: Final = 0.001
"""Seconds between two looks at what ends without ringing anybody."""


class Affairs:
    """The pending affairs of one hub."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._tickers: dict[int, weakref.ref[Ticker]] = {}
        self._lingering: dict[int, Callable[[], bool]] = {}

    def __len__(self) -> int:
        return len(self._tickers) + len(self._lingering)

    def add(self, obj: Ticker) -> None:
        """Have an object look at its affairs at every look. It is held weakly."""
        key = id(obj)
        self._tickers[key] = weakref.ref(obj, lambda _: self._tickers.pop(key, None))
        self._watch.wake_at(time.monotonic() + LONGEST_SLEEP)

    def remove(self, obj: Ticker) -> None:
        """It has no affairs any more; harmless when it had none."""
        self._tickers.pop(id(obj), None)

    def linger(self, go_on: Callable[[], bool]) -> None:
        """Call a function at every look until it says True, whoever else is gone by then."""
        if not go_on():
            self._lingering[id(go_on)] = go_on
            self._watch.wake_at(time.monotonic() + _LINGER_PAUSE)

    def _tick(self) -> None:
        """Look at all of them once."""
        for ref in list(self._tickers.values()):
            ticker = ref()
            if ticker is not None:
                ticker._tick()
        for key, go_on in list(self._lingering.items()):
            if go_on():
                self._lingering.pop(key, None)
        if self._lingering:
            self._watch.wake_at(time.monotonic() + _LINGER_PAUSE)
        elif self._tickers:
            # A peer that lies may not ring: what it has sent itself is seen this late.
            self._watch.wake_at(time.monotonic() + LONGEST_SLEEP)

    def close(self) -> None:
        """The end: what lingers is called a last time."""
        for go_on in list(self._lingering.values()):
            go_on()
        self._lingering.clear()

    def close_in_child(self) -> None:
        """After fork: all of it is the parent's."""
        self._lingering.clear()
        self._tickers.clear()
