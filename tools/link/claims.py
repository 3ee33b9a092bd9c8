# SPDX-License-Identifier: Apache-2.0
"""Which link of a namespace publishes a far publisher again: one, whatever links lead there.

Records of the namespace say so. A link that finds a record of another one, before or behind its own
announcement, takes its own back. So two that begin at once may both wait. After the death of a
broker the next one hears of records one by one, and two may both have a claim: the later one ends.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shmnd.directory import Announcement, Directory

__all__ = ["CLAIM", "Claims"]

CLAIM: Final = "ipc.link.publisher"
"""The kind of the records, whose names are the adapters of far publishers."""
_PAUSE: Final = 2.0
"""Seconds after which two that began at once have begun again, each at a time of its own."""
_TRY: Final = 1.0
"""Seconds in which a record may be of a link that takes it back, for it has found another one."""


@dataclass(slots=True)
class _Claim:
    """A far publisher that this link publishes again."""

    origin: str
    """The link it comes from."""
    record: Announcement
    made: int
    """When it was made (CLOCK_MONOTONIC, in ns)."""
    parts: int = 1
    """How many parts of this link have it."""


class Claims:
    """The far publishers that one link publishes again."""

    def __init__(self, directory: Directory, adapter: str) -> None:
        self._directory: Final = directory
        self._adapter: Final = adapter
        self._watch: Final = directory.watch(CLAIM)
        self._others: Final[dict[str, dict[tuple[str, int], tuple[int, str, float]]]] = {}
        """By far publisher, the records of other links, each with when its claim was made, by which
        adapter, and when it was heard of here."""
        self._mine: Final[dict[str, _Claim]] = {}
        """By far publisher."""
        self._pauses: Final[dict[str, float]] = {}
        self._lock: Final = threading.Lock()

    def take(self, uid: str, origin: str) -> bool:
        """Take a publisher that a link offers; False where it comes by another link."""
        with self._lock:
            self._hear()
            if uid in self._mine:
                mine = self._mine[uid]
                if mine.origin != origin or self._is_superseded(uid):
                    return False
                mine.parts += 1  # it came again before its end was carried
                return True
            now = time.monotonic()
            if uid in self._others or now < self._pauses.get(uid, 0.0):
                return False
            made = time.monotonic_ns()
            record = self._directory.announce(CLAIM, uid, {"made": made})
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
            self._mine[uid] = _Claim(origin, record, made)
            return True

    def superseded(self) -> list[tuple[str, str]]:
        """Return the links and publishers whose claims are to end: another link had one before."""
        with self._lock:
            self._hear()
            mine = [(claim.origin, uid) for uid, claim in self._mine.items()]
            return [(origin, uid) for origin, uid in mine if self._is_superseded(uid)]

    def _is_superseded(self, uid: str) -> bool:
        own = self._mine[uid].made, self._adapter
        settled = time.monotonic() - _TRY
        return any(
            (made, adapter) < own and heard <= settled
            for made, adapter, heard in self._others.get(uid, {}).values()
        )

    def _hear(self) -> None:
        """Take in the records of other links; a record of this one may be on its way to its end."""
        for change in self._watch.changes():
            entry = change.entry
            records = self._others.setdefault(entry.name, {})
            made = entry.data.get("made")
            if change.gone:
                records.pop(entry.key, None)
            elif entry.adapter != self._adapter and isinstance(made, int):
                records[entry.key] = made, entry.adapter, time.monotonic()
            if not records:
                del self._others[entry.name]

    def release(self, uid: str) -> None:
        """Leave a publisher to other links, once all parts that have taken it have ended."""
        with self._lock:
            mine = self._mine.get(uid)
            if mine is None:
                return
            mine.parts -= 1
            if not mine.parts:
                del self._mine[uid]
                mine.record.close()
