# SPDX-License-Identifier: Apache-2.0
"""Which link of a namespace publishes a far publisher again: one, whatever links lead there.

Records of the namespace say so. A link that finds a record of another one, before or behind its own
announcement, takes its own back. So two that begin at once may both wait, and never both publish.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shmnd.directory import Announcement, Directory

__all__ = ["CLAIM", "Claims"]

CLAIM: Final = "ipc.link.publisher"
"""The kind of the records, whose names are the adapters of far publishers."""
_PAUSE: Final = 2.0
"""Seconds after which two that began at once have begun again, each at a time of its own."""


class Claims:
    """The far publishers that one link publishes again."""

    def __init__(self, directory: Directory) -> None:
        self._directory: Final = directory
        self._watch: Final = directory.watch(CLAIM)
        self._mine: Final[dict[str, tuple[str, Announcement, int]]] = {}
        """By far publisher: the link it comes from, the record, and how many parts have it."""
        self._pauses: Final[dict[str, float]] = {}
        self._lock: Final = threading.Lock()

    def take(self, uid: str, origin: str) -> bool:
        """Take a publisher that a link offers; False where it comes by another link."""
        with self._lock:
            if uid in self._mine:
                held, record, parts = self._mine[uid]
                if held == origin:  # it came again before its end was carried
                    self._mine[uid] = held, record, parts + 1
                return held == origin
            self._watch.changes()
            known = any(entry.name == uid for entry in self._watch.entries)
            if known or time.monotonic() < self._pauses.get(uid, 0.0):
                return False
            self._pauses.pop(uid, None)
            record = self._directory.announce(CLAIM, uid)
            if len(self._directory.find(CLAIM, uid)) > 1:
                record.close()
                self._pauses[uid] = time.monotonic() + random.uniform(0, _PAUSE)
                return False
            self._mine[uid] = origin, record, 1
            return True

    def release(self, uid: str) -> None:
        """Leave a publisher to other links, once all parts that have taken it have ended."""
        with self._lock:
            if uid not in self._mine:
                return
            origin, record, parts = self._mine.pop(uid)
            if parts > 1:
                self._mine[uid] = origin, record, parts - 1
            else:
                record.close()
