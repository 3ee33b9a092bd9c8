# SPDX-License-Identifier: Apache-2.0
"""What the ends of one process share in a namespace: an adapter, and notifications of changes.

The memory of subscribers, which is little, is allocated from that adapter. It is closed with the
last end, and with the last sample that is still held.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from shmnd.common.closing import Ending
from shmnd.common.exits import Closable, ClosedAtExit
from shmnd.common.held import Held
from shmnd.directory import Directory
from shmnd.provider import open_adapter
from shmnd.status import NdError
from shmnd.waiter import Attendant

if TYPE_CHECKING:
    from shmnd.adapter import Adapter
    from shmnd.directory import Announcement
    from shmnd.neighbours import Neighbour

__all__ = ["Attachment", "NamespaceAdapter", "PublisherId", "remember"]


class AttendingEnd(Protocol):
    """An end that handles changes which another thread has seen."""

    _shared: NamespaceAdapter

    def _attend(self) -> None:
        """Handle the changes; never wait for others."""


class NamespaceAdapter:
    """One for each namespace and group of a process."""

    _all: ClassVar[dict[tuple[str | None, int | str | None], NamespaceAdapter]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    @classmethod
    def share(cls, namespace: str | None, group: int | str | None, user: AttendingEnd) -> None:
        """Set `_shared` of an end to the object of a namespace and group, and note the end as user.

        Where a handler of a signal raises in between, `give_back` ends it as well.
        """
        with Held(cls._lock):
            shared = cls._all.get((namespace, group))
            if shared is None:
                shared = cls._all[namespace, group] = cls(namespace, group)
            user._shared = shared
            shared._users.add(id(user))

    def __init__(self, namespace: str | None, group: int | str | None) -> None:
        self._key = namespace, group
        self._pid = os.getpid()
        self._users: set[int] = set()
        self._news: dict[int, weakref.ref[AttendingEnd]] = {}
        self.adapter: Adapter = open_adapter(namespace=namespace, group=group)
        self.directory = Directory(self.adapter)
        self._attendant = Attendant(self.adapter, self._attend)

    def take(self, user: object) -> None:
        """Note one more user, which keeps the adapter open until `give_back`."""
        with Held(self._lock):
            self._users.add(id(user))

    def give_back(self, user: object) -> None:
        """Forget a user; the last one closes the adapter. Harmless twice."""
        with Held(self._lock):
            self._users.discard(id(user))
            if self._users or self._pid != os.getpid():
                return
            if self._all.get(self._key) is self:
                del self._all[self._key]
        self._attendant.close()
        self.adapter.close()

    def read_records(self, kind: str, name: str) -> None:
        """Wait until the broker has sent its records of a name; without a broker, do not."""
        try:
            self.directory.find(kind, name)
        except NdError:
            pass

    def attend_soon(self, end: AttendingEnd) -> None:
        """Have the next thread that polls call `_attend` of an end. Never waits."""
        self._news[id(end)] = weakref.ref(end)
        self._attendant.ask()

    def _attend(self) -> None:
        while self._news:
            try:
                _, reference = self._news.popitem()
            except KeyError:
                return
            end = reference()
            if end is not None:
                end._attend()

    @classmethod
    def forget(cls) -> None:
        """Forget all adapters in a forked child: they belong to the parent."""
        cls._lock = threading.RLock()
        cls._all = {}


@dataclass(frozen=True)
class PublisherId:
    """Names a publisher: its topic, its process, and which of its publishers it is."""

    topic: str
    pid: int
    uid: str

    def __str__(self) -> str:
        return f"publisher {self.uid[:8]} of {self.topic!r} in process {self.pid}"


class Attachment(Ending):
    """What binds a subscriber to a publisher: kept until nothing of it is held any more."""

    def __init__(
        self, shared: NamespaceAdapter, neighbour: Neighbour, announcement: Announcement
    ) -> None:
        self._shared: NamespaceAdapter | None = shared
        self._neighbour = neighbour
        self._announcement = announcement
        shared.take(self)  # last: from here on its end gives it back

    def close(self) -> None:
        """Release the memory to the publisher. Harmless twice."""
        shared = self._shared
        if shared is not None:
            self._announcement.close()
            self._neighbour.close()
            shared.give_back(self)
            self._shared = None  # last: what a handler of a signal has interrupted is called again

    _end_of_life = close


_open: ClosedAtExit[Closable] = ClosedAtExit()


def remember(end: Closable) -> None:
    """Close an end when the process ends, so that others see it closed and not dead."""
    _open.add(end)


def _after_fork_in_child() -> None:
    _open.clear()
    NamespaceAdapter.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
