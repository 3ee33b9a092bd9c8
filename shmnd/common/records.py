# SPDX-License-Identifier: Apache-2.0
"""Records that processes announce to each other, and how they are followed.

See `shmnd.directory` for the calls that make these.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shmnd.common.held import Held

__all__ = ["Announcement", "Change", "Entry", "Watch"]

_MOST_UNREAD: Final = 4096
"""Changes that a watch keeps one by one; further ones that are not taken are merged."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as every process sees it."""

    kind: str
    name: str
    data: Mapping[str, Any]
    adapter: str
    """Names the adapter that announced it."""
    process: str
    pid: int
    number: int
    since: int = field(default=0, compare=False)
    """Of one that is announced again, to a broker that did not have it: the time (CLOCK_MONOTONIC,
    in µs) by which its process had announced it first. 0 of one that is new."""
    pid_space: int = 0
    """The PID namespace in which the kernel has reported `pid`, by the inode of that; 0 where the
    process has reported it itself."""

    def came_after(self, time_us: int) -> bool:
        """Return whether it is new, or was announced after a time (CLOCK_MONOTONIC)."""
        return not self.since or self.since >= time_us

    @property
    def key(self) -> tuple[str, int]:
        """The adapter and the number, which identify the record."""
        return self.adapter, self.number


@dataclass(frozen=True, slots=True)
class Change:
    """A record that came, changed, or went."""

    entry: Entry
    gone: bool
    _first: bool = field(default=False, compare=False, repr=False)
    """Whether the record is new to the watch."""


def _merged(changes: deque[Change]) -> deque[Change]:
    """Return the changes without those that a later change replaces, in their order.

    A record that came and went leaves no change. Any other record leaves its last state, and before
    that its end if the reader knows an earlier record of the same key.
    """
    kept: dict[tuple[tuple[str, int], bool], Change] = {}  # by record, and whether it is its end
    for change in changes:
        key = change.entry.key
        before = kept.pop((key, False), None)
        first = change._first or (before is not None and before._first)
        if not change.gone:
            kept[key, False] = Change(change.entry, gone=False, _first=first)
        elif not first:
            kept[key, True] = change
    return deque(kept.values())


class Watch:
    """The records of a kind, or of one name of it, and what changes among them.

    `changes` first returns the records that exist already. After a restart of the broker it
    returns only the difference then. Of more than 4,096 changes that were not taken it leaves out
    records that came and went since, and states of a record before its last one. `wake` is called,
    from any thread, when there is a change to return; it must not wait.
    """

    def __init__(self, kind: str, name: str, progress: Callable[[], None]) -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.wake: Callable[[], None] = lambda: None
        self.end: Callable[[], None] = lambda: None
        self._progress = progress
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], Entry] = {}
        self._changes: deque[Change] = deque()
        self._most = _MOST_UNREAD

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All records that exist now, as far as this process has received them."""
        self._progress()
        with Held(self._lock):
            return tuple(self._known.values())

    @property
    def pending(self) -> bool:
        """Whether `changes` has something to return."""
        return bool(self._changes)

    def changes(self) -> list[Change]:
        """Return what changed since the last call. Never waits."""
        self._progress()
        with Held(self._lock):
            found = list(self._changes)
            self._changes.clear()
        return found

    def changes_into(self, found: deque[Change]) -> None:
        """Append what changed since the last call. Never waits.

        A handler of a signal may raise in it or behind it: a change is in `found` even so.
        """
        self._progress()
        none: deque[Change] = deque()
        with Held(self._lock):
            found += self._changes
            self._changes = none  # no call between the two

    def take(self, entry: Entry, *, gone: bool) -> None:
        """Note a record that came or went."""
        # A handler of a signal may raise behind each call, and this is called again then.
        key = entry.key
        with Held(self._lock):
            if len(self._changes) >= self._most:
                self._changes = _merged(self._changes)
                self._most = max(_MOST_UNREAD, 2 * len(self._changes))
            known = self._known.get(key)
            change = (Change(entry, gone, known is None),)
            if known is not None if gone else known != entry:
                if gone:
                    del self._known[key]
                else:
                    self._known[key] = entry
                self._changes += change  # no call between the two
        self.wake()

    def keys(self) -> set[tuple[str, int]]:
        """Return which records are known."""
        with Held(self._lock):
            return set(self._known)

    def forget(self, key: tuple[str, int]) -> None:
        """Note that a record is gone, which the broker did not say."""
        entry = self._known.get(key)
        if entry is not None:
            self.take(entry, gone=True)

    def __repr__(self) -> str:
        of = f"{self.kind} {self.name!r}" if self.name else self.kind
        return f"<Watch of {of}: {len(self._known)} records, {len(self._changes)} changes to take>"

    def close(self) -> None:
        """End the watch. Harmless twice."""
        self.end()
        self.end = lambda: None

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Announcement:
    """A record of this process, until it is closed or its adapter is."""

    def __init__(self, retract: Callable[[], None], kind: str, name: str) -> None:
        self._retract: Callable[[], None] | None = retract
        self.kind: Final = kind
        self.name: Final = name

    def close(self) -> None:
        """Retract the record. Harmless twice."""
        retract = self._retract
        if retract is not None:
            retract()
            self._retract = None  # last: what a handler of a signal has interrupted is called again

    def __enter__(self) -> Announcement:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "retracted" if self._retract is None else "announced"
        return f"<Announcement {self.kind} {self.name!r} {state}>"
