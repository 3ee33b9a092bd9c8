# SPDX-License-Identifier: Apache-2.0
"""What the ends of one process share in a namespace: an adapter, and the notice of changes.

Subscribers and the like have little memory, which lies in the room's adapter. It is closed with
the last end, and with the last sample that is still held.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from shmnd.common.held import Held
from shmnd.common.weak import Living
from shmnd.directory import Directory
from shmnd.ipc.common.closed import begin_exit
from shmnd.provider import open_adapter
from shmnd.status import NdError
from shmnd.waiter import Attendant

if TYPE_CHECKING:
    from shmnd.adapter import Adapter
    from shmnd.directory import Announcement
    from shmnd.neighbours import Neighbour

__all__ = ["PublisherId", "Room", "Tie", "remember"]


class Occupant(Protocol):
    """An end that something may have happened to."""

    def _attend(self) -> None:
        """Take note of it; never wait for others."""


class Room:
    """One for each namespace and group of a process."""

    _rooms: ClassVar[dict[tuple[str | None, int | str | None], Room]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    @classmethod
    def of(cls, namespace: str | None, group: int | str | None) -> Room:
        """Return the room, and count one more user of it."""
        with Held(cls._lock):
            room = cls._rooms.get((namespace, group))
            if room is None:
                room = cls._rooms[namespace, group] = cls(namespace, group)
            room._users += 1
            return room

    def __init__(self, namespace: str | None, group: int | str | None) -> None:
        self._key = namespace, group
        self._users = 0
        self._news: dict[int, weakref.ref[Occupant]] = {}
        self.adapter: Adapter = open_adapter(namespace=namespace, group=group)
        self.directory = Directory(self.adapter)
        self._attendant = Attendant(self.adapter, self._attend)

    def take(self) -> None:
        """Count one more user."""
        with Held(self._lock):
            self._users += 1

    def give_back(self) -> None:
        """Count one user less; the last one closes the adapter."""
        with Held(self._lock):
            self._users -= 1
            if self._users or self._rooms.get(self._key) is not self:
                return
            del self._rooms[self._key]
        self._attendant.close()
        self.adapter.close()

    def read_records(self, kind: str, name: str) -> None:
        """Wait until the broker has said what it knows of a name; do without one that is gone."""
        try:
            self.directory.find(kind, name)
        except NdError:
            pass

    def attend_soon(self, occupant: Occupant) -> None:
        """Have an end take note of something, by the next thread that polls. Never waits."""
        self._news[id(occupant)] = weakref.ref(occupant)
        self._attendant.ask()

    def _attend(self) -> None:
        while self._news:
            try:
                _, reference = self._news.popitem()
            except KeyError:
                return
            occupant = reference()
            if occupant is not None:
                occupant._attend()

    @classmethod
    def forget(cls) -> None:
        """In a process that was forked off: all of it is the parent's."""
        cls._lock = threading.RLock()
        cls._rooms = {}


@dataclass(frozen=True)
class PublisherId:
    """Names a publisher: its topic, its process, and which of its publishers it is."""

    topic: str
    pid: int
    uid: str

    def __str__(self) -> str:
        return f"publisher {self.uid[:8]} of {self.topic!r} in process {self.pid}"


class Tie:
    """What binds a subscriber to a publisher: kept until nothing of it is held any more."""

    def __init__(self, room: Room, neighbour: Neighbour, announcement: Announcement) -> None:
        room.take()
        self._room: Room | None = room
        self._neighbour = neighbour
        self._announcement = announcement

    def close(self) -> None:
        """Let the publisher have the memory. Harmless twice."""
        room, self._room = self._room, None
        if room is not None:
            self._announcement.close()
            self._neighbour.close()
            room.give_back()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass  # the interpreter is ending


class _Closable(Protocol):
    def close(self) -> None: ...


_open: Living[_Closable] = Living()


def remember(end: _Closable) -> None:
    """Close an end when the process ends, so that others see it closed and not dead."""
    _open.add(end)


def _close_all() -> None:
    begin_exit()
    for end in _open.those():  # threads of the program may run, and open others
        try:
            end.close()
        except Exception:
            pass  # the others are to be closed as well


def _after_fork_in_child() -> None:
    _open.clear()
    Room.forget()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
