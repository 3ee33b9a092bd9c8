# SPDX-License-Identifier: Apache-2.0
"""A subscriber of some publishers of a topic: those that links want."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shmnd import ipc
from shmnd.common.records import Change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmnd.common.records import Entry

__all__ = ["Chosen", "Start"]


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading of a publisher begins."""

    history: int | None = None
    """How many samples of before; None: all that are kept."""
    early: bool = False
    """With all that is still there: the topic was wanted before the publisher came."""


class Chosen(ipc.Subscriber):
    """Receives from the publishers that are chosen, and has no seat at the others.

    A publisher that waits for subscribers would take one that has a seat, but throws its samples
    away, for one that receives them.
    """

    def __init__(
        self, name: str, totals: dict[str, int], starts: Mapping[str, Start], **options: Any
    ) -> None:
        self._totals = totals
        """How many samples each publisher had sent when it was read for the last time."""
        self._starts = dict(starts)
        self._met: dict[str, Entry] = {}
        super().__init__(name, **options)

    @property
    def chosen(self) -> set[str]:
        """The publishers that it receives from, by their adapters."""
        return set(self._starts)

    def choose(self, uid: str, start: Start) -> None:
        """Receive from a publisher, as soon as it is known; again is harmless."""
        if uid in self._starts:
            return
        self._starts[uid] = start
        entry = self._met.get(uid)
        if entry is not None:
            self._changes.append(Change(entry, gone=False))
            self._take_changes()

    def leave(self, uid: str) -> None:
        """Receive from a publisher no more; what it has sent stays unread."""
        self._starts.pop(uid, None)
        for source in self._sources:
            if source.publisher.uid == uid:
                self._part(source)

    def first(self, uid: str) -> int | None:
        """Return the number of the first sample that is read; None where none is read yet."""
        for source in self._sources:
            if source.publisher.uid == uid:
                return int(source.wanted)
        return None

    def note_totals(self) -> None:
        """Note how many samples each publisher has sent by now."""
        for source in self._sources:
            self._totals[source.publisher.uid] = source.written

    def _join(self, entry: Entry) -> None:
        self._met[entry.adapter] = entry
        start = self._starts.get(entry.adapter)
        if start is not None:
            self._history, self._opened = start.history, start.early
            super()._join(entry)

    def _take_change(self, change: Change) -> None:
        if change.gone:
            self._met.pop(change.entry.adapter, None)
        super()._take_change(change)

    def _part(self, source: Any) -> None:
        self._totals[source.publisher.uid] = source.written
        super()._part(source)
