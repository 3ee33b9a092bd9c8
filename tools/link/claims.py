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

    def __init__(self, directory: Directory, adapter: str) -> None:
        self._directory: Final = directory
        self._adapter: Final = adapter
        self._watch: Final = directory.watch(CLAIM)
        self._others: Final[dict[str, set[tuple[str, int]]]] = {}
        """By far publisher, the records of other links."""
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
            self._hear()
            now = time.monotonic()
            if uid in self._others or now < self._pauses.get(uid, 0.0):
                return False
            record = self._directory.announce(CLAIM, uid)
            try:
                found = self._directory.find(CLAIM, uid)
            except BaseException:
                record.close()
                raise
            if any(entry.adapter != self._adapter for entry in found):
                record.close()
                for past in [each for each, end in self._pauses.items() if end < now]:
                    del self._pauses[past]
                self._pauses[uid] = now + random.uniform(0, _PAUSE)
                return False
            self._mine[uid] = origin, record, 1
            return True

    def _hear(self) -> None:
        """Take in the records of other links; a record of this one may be on its way to its end."""
        for change in self._watch.changes():
            entry = change.entry
            records = self._others.setdefault(entry.name, set())
            if change.gone:
                records.discard(entry.key)
            elif entry.adapter != self._adapter:
                records.add(entry.key)
            if not records:
                del self._others[entry.name]

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
