# SPDX-License-Identifier: Apache-2.0
"""Which link of a namespace publishes a far publisher again: one, whatever links lead there.

Records of the namespace say so. Of those that the broker has, the first one counts: a link that
finds one of another link before its own takes its own back. After the death of a broker the next
one hears of records one by one, and two may both have a claim: the later one ends.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmnd.directory import Announcement, Directory, Entry

__all__ = ["CLAIM", "Claims"]

CLAIM: Final = "ipc.link.publisher"
"""The kind of the records, whose names are the adapters of far publishers."""
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


@dataclass(frozen=True, slots=True)
class _Other:
    """A record of another link."""

    made: float
    adapter: str
    pid: int
    heard: float
    """When it was heard of here."""


class Claims:
    """The far publishers that one link publishes again.

    `wake` is called, from any thread, when a claim has come or gone; it must not wait.
    """

    def __init__(
        self, directory: Directory, adapter: str, wake: Callable[[], None] = lambda: None
    ) -> None:
        self._directory: Final = directory
        self._adapter: Final = adapter
        self._watch: Final = directory.watch(CLAIM)
        self._watch.wake = wake
        self._others: Final[dict[str, dict[tuple[str, int], _Other]]] = {}
        """By far publisher, the records of other links."""
        self._mine: Final[dict[str, _Claim]] = {}
        """By far publisher."""
        self._lock: Final = threading.Lock()

    def take(self, uid: str, origin: str) -> bool:
        """Take a publisher that a link offers; False where it comes by another way."""
        with self._lock:
            self._hear()
            if uid in self._mine or uid in self._others:
                return False
            made = time.monotonic_ns()
            record = self._directory.announce(CLAIM, uid, {"made": made})
            try:
                found = self._directory.find(CLAIM, uid)
            except BaseException:
                record.close()
                raise
            if self._is_preceded(found):
                record.close()
                return False
            self._mine[uid] = _Claim(origin, record, made)
            return True

    def _is_preceded(self, found: Sequence[Entry]) -> bool:
        """Return whether another link has a record before that of this one.

        The order of records that were announced again, to a new broker, says nothing.
        """
        own = [entry for entry in found if entry.adapter == self._adapter]
        first = found.index(own[0]) if own and not own[0].since else len(found)
        return any(
            entry.adapter != self._adapter and (place < first or entry.since > 0)
            for place, entry in enumerate(found)
        )

    def has(self, uid: str) -> bool:
        """Return whether this link has a publisher."""
        with self._lock:
            return uid in self._mine

    def holder(self, uid: str) -> int | None:
        """Return the process of another link that has a publisher, or tries to take it."""
        with self._lock:
            self._hear()
            others = self._others.get(uid)
            if uid in self._mine or not others:
                return None
            return min(others.values(), key=lambda each: (each.made, each.adapter)).pid

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
            (other.made, other.adapter) < own and other.heard <= settled
            for other in self._others.get(uid, {}).values()
        )

    def _hear(self) -> None:
        """Take in the records of other links; a record of this one may be on its way to its end."""
        for change in self._watch.changes():
            entry = change.entry
            records = self._others.setdefault(entry.name, {})
            made = entry.data.get("made")
            if change.gone:
                records.pop(entry.key, None)
            elif entry.adapter != self._adapter:
                made = made if isinstance(made, int) else math.inf  # it keeps others out alike
                records[entry.key] = _Other(made, entry.adapter, entry.pid, time.monotonic())
            if not records:
                del self._others[entry.name]

    def release(self, uid: str) -> None:
        """Leave a publisher to other links. Harmless when this one does not have it."""
        with self._lock:
            mine = self._mine.pop(uid, None)
            if mine is not None:
                mine.record.close()
