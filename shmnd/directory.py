# SPDX-License-Identifier: Apache-2.0
"""Names that processes announce to each other: an extension, for libraries on top of it.

A record is a name of some kind with a few bytes of data. It belongs to an adapter and ends with
it. It survives the broker: its process announces it again to the next one. A `Watch` follows the
records of a kind, or those of one name.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.held import Attempted
from shmnd.common.records import Announcement, Change, Entry, Watch

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import Announcer

__all__ = ["Announcement", "Change", "Changes", "Directory", "Entry", "Watch"]


class Changes:
    """The changes of a watch, in order. Each stays here until it has been handled."""

    def __init__(self, watch: Watch) -> None:
        self._watch: Final = watch
        self._left: Final[deque[Change]] = deque()
        self._taking: Final = threading.RLock()

    def append(self, change: Change) -> None:
        """Add a change behind all others."""
        self._left.append(change)

    def take_in(
        self, take: Callable[[Change], None], then: Callable[[], None] | None = None
    ) -> None:
        """Call `take` for each change, then `then`; do nothing while another thread does so.

        A signal handler that interrupts that thread may call this, and begins from the start.
        """
        left = self._left
        with Attempted(self._taking) as free:
            if not free:
                return
            self._watch.changes_into(left)
            while left:
                change = left[0]
                take(change)
                if left and left[0] is change:
                    del left[0]
            if then is not None:
                then()


class Directory:
    """The records of a namespace, as an adapter sees and makes them."""

    def __init__(self, adapter: Announcer) -> None:
        self._adapter = adapter
        self._names = adapter._engine.names

    def __repr__(self) -> str:
        return f"<Directory of {self._adapter!r}>"

    def announce(self, kind: str, name: str, data: Mapping[str, Any] | None = None) -> Announcement:
        """Announce a record, and return the announcement, whose `close` retracts it.

        `kind` has up to 32 lower-case letters, digits, dots and hyphens, `name` up to 255 bytes,
        `data` up to 4,096 bytes as JSON.
        """
        self._adapter._check_open("Directory.announce")
        return self._names.announce(self._adapter, kind, name, dict(data or {}))

    def find(self, kind: str, name: str = "") -> tuple[Entry, ...]:
        """Return the records of a kind, or those of one name, that exist now.

        They are in the order in which the present broker has heard of them.
        """
        self._adapter._check_open("Directory.find")
        return tuple(self._names.find(kind, name))

    def watch(self, kind: str, name: str = "") -> Watch:
        """Return a watch on a kind, or on one name of it."""
        self._adapter._check_open("Directory.watch")
        return self._names.watch(kind, name)
