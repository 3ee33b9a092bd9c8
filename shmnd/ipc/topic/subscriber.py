# SPDX-License-Identifier: Apache-2.0
"""Subscribers: the objects that programs receive samples with."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.closing import Closing
from shmnd.common.deadline import deadline_of, left_until
from shmnd.common.weak_methods import without_owner
from shmnd.ipc.common.closed import announce_closed
from shmnd.ipc.common.limits import name_of, number
from shmnd.ipc.common.room import PublisherId, Room, Tie, remember
from shmnd.ipc.errors import Closed, NoPublisher, PeerLost, TypeMismatch
from shmnd.ipc.topic import here
from shmnd.ipc.topic.reader import ReaderCore
from shmnd.ipc.topic.sample import Sample
from shmnd.ipc.topic.seats import POLICIES, Unreached
from shmnd.ipc.topic.source import Source
from shmnd.ipc.types import forms
from shmnd.neighbours import Neighbour
from shmnd.status import NdError
from shmnd.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from shmnd.directory import Change, Entry

__all__ = ["Subscriber"]

TOPIC: Final = "ipc.topic"
SEAT: Final = "ipc.seat"
_MOST_BUFFER: Final = 1 << 18
_MOST_HELD: Final = 4096
_HELD: Final = 256


class Subscriber(ReaderCore, Closing):
    """Receives the samples of a topic, from all its publishers.

    It may fall `buffer` samples behind; `overflow` says what happens then: 'drop_oldest',
    'drop_newest', 'conflate' (only the newest is received) or 'block' (the publisher waits).
    `history` bounds how many samples it receives that were sent before it was opened; None: all
    that are kept. `max_held` bounds how many samples it holds at once. Without
    `wait_for_publisher` a receive raises NoPublisher when there is none.
    """

    def __init__(
        self,
        name: str,
        type: Any = None,
        *,
        buffer: int = 8,
        overflow: str = "drop_oldest",
        history: int | None = None,
        max_held: int | None = None,
        wait_for_publisher: bool = True,
        namespace: str | None = None,
        group: int | str | None = None,
    ) -> None:
        call = "Subscriber"
        self.topic = self.name = name_of(name, call)
        self._form = None if type is None else forms.form_of(type, call)
        self._buffer = number(call, "buffer", buffer, 1, _MOST_BUFFER)
        if overflow not in POLICIES:
            raise ValueError(f"{call}: overflow {overflow!r} is none of {', '.join(POLICIES)}")
        self.overflow: Final = overflow
        self._history = (
            None if history is None else number(call, "history", history, 0, _MOST_BUFFER)
        )
        held = _HELD if max_held is None else max_held
        self._max_held = number(call, "max_held", held, 1, _MOST_HELD)
        self._wait_for_publisher = bool(wait_for_publisher)
        self._has_descriptor = False
        self._opened = False
        self._lost_before = 0
        self._mismatch: TypeMismatch | None = None
        self._evicted: PeerLost | None = None
        self._checking = 0  # the thread that takes changes
        self._changes: deque[Change] = deque()  # each is there until it is taken in
        self._unreached: Unreached[str] = Unreached()
        # Sources that have gone, as long as samples of them are held.
        self._parted: weakref.WeakValueDictionary[int, Source] = weakref.WeakValueDictionary()
        self._opening_us: Final = time.monotonic_ns() // 1000
        self._room = Room.of(namespace, group)
        try:
            self._waiter = Waiter(self._room.adapter, self._anything, self._doze)
            self._watch = self._room.directory.watch(TOPIC, self.name)
            self._watch.wake = without_owner(self._tell)
            self._take_changes()
        except BaseException:
            self._part_from_all()
            self._room.give_back()
            raise
        try:
            self._require_served()
        except BaseException:
            self.close()
            raise
        self._opened = True
        remember(self)
        here.enter_subscriber(self.name, self)

    def _hear(self) -> None:
        """Find members, after the broker has reported all publishers."""
        if not self.closed:
            self._room.hear(TOPIC, self.name)
            self._check_members()

    # -- receiving --

    def _receive_later(self, timeout: float | None, box: list[Sample]) -> None:
        call = "Subscriber.receive"
        deadline = deadline_of(timeout, call)
        if timeout != 0 and self._spin_for(timeout, box):
            return
        poll = partial(self._take_armed, box)
        while True:
            self._require_open(call)
            self._check_members()
            if self._take(box):
                return
            self._require_publisher(call)
            left = left_until(deadline)
            if left == 0:
                raise self._late(call, timeout)
            try:
                self._waiter.sleep(poll, self._unreached.longest(left))
            except NdError:
                self._require_open(call)  # another thread has closed it, and the last adapter
                raise
            if box:
                return

    async def areceive(self, timeout: float | None = None) -> Sample:
        """Return the next sample as `receive` does, and let other tasks run meanwhile."""
        call = "Subscriber.areceive"
        self._require_open(call)
        deadline = deadline_of(timeout, call)
        box: list[Sample] = []
        try:
            while not self._take(box):
                self._check_members()
                if self._take(box):
                    break
                self._require_publisher(call)
                left = left_until(deadline)
                if left == 0:
                    raise self._late(call, timeout)
                await self._waiter.wait_in_loop(self._unreached.longest(left))
                self._require_open(call)
            return box[0]
        except BaseException:
            self._keep(box)
            raise

    def __iter__(self) -> Iterator[Sample]:
        """Return the samples as they come, until it is closed or told not to wait."""
        box: list[Sample] = []
        while not self.closed:
            try:
                self._receive_into(box)
                sample = box[0]
                del box[0]
            except (Closed, NoPublisher):
                return
            except BaseException:
                self._keep(box)
                raise
            yield sample

    async def __aiter__(self) -> AsyncIterator[Sample]:
        """Return the samples as they come, until it is closed or told not to wait."""
        while not self.closed:
            try:
                sample = await self.areceive()
            except (Closed, NoPublisher):
                return
            yield sample

    def fileno(self) -> int:
        """Return a descriptor that is readable when `try_receive` may find a sample."""
        self._require_open("Subscriber.fileno")
        number = self._waiter.fileno()
        self._has_descriptor = True
        return number

    def _waits_by(self) -> tuple[Waiter, None]:
        """Return what a wait set sleeps by: a waiter, and no further descriptor."""
        self._require_open("Subscriber.fileno")
        return self._waiter, None

    def ready(self) -> bool:
        """Return whether `try_receive` would find something, be it an error. Never waits."""
        self._require_open("Subscriber.ready")
        if self._ready():
            return True
        self._check_members()
        return self._ready() or bool(
            self._mismatch
            or self._evicted
            or self._unreached.trouble
            or any(source.refused for source in self._sources)
            or not (self._sources or self._wait_for_publisher)
        )

    def _late(self, call: str, timeout: float | None) -> TimeoutError:
        who = len(self._sources)
        return TimeoutError(
            f"{call}: no sample on topic {self.name!r} within {timeout} s; "
            + (f"it has {who} publishers" if who else "it has no publisher")
            + str(self._unreached)
        )

    # -- what it knows --

    @property
    def lost(self) -> int:
        """How many samples its policy has dropped."""
        self._find_seats()
        return self._lost_before + sum(source.lost for source in self._sources)

    @property
    def held(self) -> int:
        """How many samples are held."""
        parted = (each() for each in self._parted.valuerefs())  # another thread may add one
        return sum(source.held for source in (*self._sources, *parted) if source is not None)

    @property
    def publishers(self) -> int:
        """How many publishers the topic has now."""
        self._require_open("Subscriber.publishers")
        self._hear()
        return sum(1 for source in self._sources if not source.gone)

    # -- publishers come and go --

    def _tell(self) -> None:
        self._room.tell(self)

    def _attend(self) -> None:
        if not self.closed:
            self._take_changes()
            self._find_seats()

    def _anything(self) -> bool:
        """A poll may find something: a sample, a publisher, or that one is gone."""
        if self.closed or self._watch.pending or self._mismatch or self._evicted:
            return True
        return bool(self._ready() or self._unreached.trouble or self._find_seats()) or any(
            source.refused or (not source.gone and (source.neighbour.dead or source.ended))
            for source in self._sources
        )

    def _doze(self, on: bool) -> None:
        if on:
            for source in self._sources:
                source.doze()

    def _check_members(self) -> None:
        """Find members that came or went."""
        if self.closed:
            return
        self._waiter.rest()
        self._take_changes()
        self._find_seats()
        for source in self._sources:
            if source.evicted and self._evicted is None:
                self._evicted = PeerLost(
                    f"Subscriber.receive: {source.publisher} has let go of this subscriber, which"
                    " was slow; open a new one"
                )
            if source.gone or source.neighbour.dead or source.ended:
                source.gone = True
                if not source.ready:
                    self._part(source)
            else:
                source._drop_pools()

    def _take_changes(self) -> None:
        me = threading.get_ident()
        if self._checking not in (0, me):
            return  # another thread is at it
        self._checking = me  # a thread that a handler of a signal interrupts may begin again
        try:
            self._watch.changes_into(self._changes)
            while self._changes:
                change = self._changes[0]
                self._take_change(change)
                if self._changes and self._changes[0] is change:
                    del self._changes[0]
            for entry in self._unreached.due():
                self._join(entry)
        finally:
            self._checking = 0

    def _take_change(self, change: Change) -> None:
        if change.gone:  # a source that is open may come again: its process lost its session alone
            self._unreached.pop(change.entry.adapter)
        else:
            self._join(change.entry)

    def _join(self, entry: Entry) -> None:
        """Read from a publisher, too."""
        if any(source.publisher.uid == entry.adapter for source in self._sources):
            return
        try:
            theirs = forms.form_from_text(entry.data["type"])
            if self._form is None:
                self._form = theirs
            forms.require_same(self._form, theirs, f"process {entry.pid}", "Subscriber", self.name)
            self._open(entry, self._form)
            self._unreached.pop(entry.adapter)
        except TypeMismatch as exc:
            self._mismatch = exc
        except (NdError, ValueError, KeyError, TypeError) as exc:
            self._unreached.failed(entry.adapter, entry, exc)

    def _adopt(self) -> None:
        """Take the types of all publishers, where one has another type than those before."""
        self._mismatch = None
        for entry in self._watch.entries:
            self._form = None
            self._join(entry)

    def _open(self, entry: Entry, form: forms.Form) -> None:
        room = self._room
        neighbour = Neighbour(room.adapter, entry)
        announcement = source = None
        try:
            forms.require_user(form, neighbour, self.name)
            ident = secrets.randbits(62) | 1
            publisher = PublisherId(self.name, entry.pid, entry.adapter)
            head = neighbour.view(int(entry.data["head"]))
            sleepers = neighbour.view(int(entry.data["sleepers"]), writable=True)
            page = room.adapter.allocate(Source.page_bytes(self._max_held), peers="read")
            source = Source(publisher, ident, neighbour, None, form)
            policy = POLICIES.index(self.overflow)
            source.open(
                head, neighbour, sleepers, page,
                most_held=self._max_held, policy=policy, buffer=self._buffer,
                history=self._history, early=self._opened and entry.came_after(self._opening_us),
            )  # fmt: skip
            segment, offset = room.adapter.locate(page)
            record = {
                "topic": self.name, "segment": segment, "offset": offset, "held": self._max_held,
                "policy": policy, "buffer": self._buffer, "first": source.wanted, "ident": ident,
            }  # fmt: skip
            announcement = room.directory.announce(SEAT, entry.adapter, record)
            source.owner = Tie(room, neighbour, announcement)
            if any(each.publisher.uid == entry.adapter for each in self._sources):
                raise ValueError("a call within this one has met it")  # while the broker was asked
            self._add(source)
        except BaseException:  # of a handler of a signal, it may be: the publisher is met again
            if source is not None:
                self._remove(source)
                source.close()  # a publisher that has heard of it waits for it no more
                neighbour.ring()
            if announcement is not None:
                announcement.close()
            neighbour.close()
            raise
        if self.closed:  # by another thread, which has not seen this one
            self._part(source)
            return
        here.admit(entry.adapter)  # a publisher of this process need not hear of it by the broker

    def _part(self, source: Source) -> None:
        """A publisher is gone, and all that it sent was received."""
        self._lost_before += source.lost
        self._remove(source)
        source.close()
        self._parted[id(source)] = source
        if source.held == 0:
            source.owner.close()

    def _require_publisher(self, call: str) -> None:
        if self._evicted is not None:
            raise self._evicted
        self._require_served()
        if not self._wait_for_publisher and not self._sources:
            raise NoPublisher(f"{call}: topic {self.name!r} has no publisher")

    def _require_served(self) -> None:
        if self._mismatch is not None:
            raise self._mismatch
        self._unreached.raise_trouble()
        for source in self._sources:
            source._require_seat()

    # -- the end --

    def close(self) -> None:
        """End it. Samples that are held stay as they are. Harmless twice."""
        if self.closed:
            return
        self._part_from_all()
        self._watch.close()
        self._waiter.close()
        self._room.give_back()
        announce_closed(self)

    def _part_from_all(self) -> None:
        self._shut()
        for source in self._sources:
            self._part(source)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._sources)} publishers"
        return f"<Subscriber of {self.name!r}, {self.overflow}, {self.held} held, {state}>"
