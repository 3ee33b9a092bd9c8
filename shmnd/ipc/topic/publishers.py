# SPDX-License-Identifier: Apache-2.0
"""The publishers of a topic, as a subscriber meets them and parts from them."""

from __future__ import annotations

import secrets
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.closing import Closing
from shmnd.common.interruption import pass_on
from shmnd.directory import Changes
from shmnd.ipc.common.namespace_adapter import Attachment, NamespaceAdapter, PublisherId
from shmnd.ipc.errors import PeerLost, TypeMismatch
from shmnd.ipc.topic import here
from shmnd.ipc.topic.reader import ReaderCore
from shmnd.ipc.topic.seats import POLICIES, SEAT, TOPIC, Unreached, mark_of
from shmnd.ipc.topic.source import Source
from shmnd.ipc.types import forms
from shmnd.neighbours import Neighbour
from shmnd.status import NdError

if TYPE_CHECKING:
    from shmnd.directory import Change, Entry, Watch
    from shmnd.ring.shared_memory.array import SharedArray
    from shmnd.waiter import Waiter

__all__ = ["MeetsPublishers"]

_HELD: Final = 256
"""Samples of one publisher whose memory a program holds at most, unless it says how many."""


class MeetsPublishers(ReaderCore, Closing):
    """A subscriber, as far as it opens and closes the sources that it reads from."""

    name: str
    overflow: str
    _form: forms.TopicType | None
    _buffer: int
    _history: int | None
    _max_held: int | None
    _shared: NamespaceAdapter
    _watch: Watch
    _changes: Changes
    _waiter: Waiter

    def _prepare(self) -> None:
        """Begin without a publisher."""
        self._opened = self._has_left = False
        self._lost_before = 0
        self._mismatch: TypeMismatch | None = None
        self._evicted: PeerLost | None = None
        self._unreached: Unreached[str] = Unreached()
        # Sources that have gone, as long as samples of them are held.
        self._parted: weakref.WeakValueDictionary[int, Source] = weakref.WeakValueDictionary()
        self._opening_us = time.monotonic_ns() // 1000

    @property
    def type(self) -> forms.TopicType | None:
        """The type of the topic, as another end is opened with; None while it has no publisher."""
        if self._form is None and not self.closed:
            self._find_members()
        return self._form

    def adopt(self) -> None:
        """Take the types of all publishers, where one has another type than those before.

        A receive raises TypeMismatch then, until it is called or that publisher has gone.
        """
        self._require_open("Subscriber.adopt")
        self._mismatch = None
        for entry in self._watch.entries:
            before, self._form = self._form, None
            self._join(entry)
            self._settle(before)  # one that is read from already says nothing new

    def _settle(self, before: forms.TopicType | None) -> None:
        if self._form is None:
            self._form = before

    def _find_members(self) -> None:
        """Find members, after the broker has reported all publishers."""
        if not self.closed:
            self._shared.read_records(TOPIC, self.name)
            self._check_members()

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
        self._changes.take_in(self._take_change, self._join_unreached)

    def _join_unreached(self) -> None:
        for entry in self._unreached.due():
            self._join(entry)

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
            pass_on(exc)
            self._unreached.failed(entry.adapter, entry, exc)

    def _open(self, entry: Entry, form: forms.TopicType) -> None:
        shared = self._shared
        neighbour = Neighbour(shared.adapter, entry)
        announcement = source = None
        try:
            forms.require_user(form, neighbour, self.name)
            ident = secrets.randbits(62) | 1
            publisher = PublisherId(self.name, entry.pid, entry.adapter)
            head = neighbour.view(int(entry.data["head"]))
            sleepers = neighbour.view(int(entry.data["sleepers"]), writable=True)
            page = shared.adapter.allocate(Source.page_bytes(self._held), peers="read")
            mark = mark_of(shared.adapter.uid, ident)
            source = Source(publisher, mark, neighbour, None, form)
            early = self._opened and entry.came_after(self._opening_us)
            seat = self._take_seat(source, head, sleepers, page, early)
            announcement = shared.directory.announce(SEAT, entry.adapter, {**seat, "ident": ident})
            source.owner = Attachment(shared, neighbour, announcement)
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

    def _take_seat(
        self, source: Source, head: memoryview, sleepers: memoryview, page: SharedArray, early: bool
    ) -> dict[str, Any]:
        """Open a source with memory of both sides; return the record of the seat that it wants."""
        policy = POLICIES.index(self.overflow)
        source.open(
            head, source.neighbour, sleepers, page,
            most_held=self._held, counts_all=self._max_held is not None, policy=policy,
            buffer=self._buffer, history=self._history, early=early,
        )  # fmt: skip
        segment, offset = self._shared.adapter.locate(page)
        return {
            "topic": self.name, "segment": segment, "offset": offset, "held": self._held,
            "policy": policy, "buffer": self._buffer, "first": source.wanted,
        }  # fmt: skip

    @property
    def _held(self) -> int:
        return _HELD if self._max_held is None else self._max_held

    def _part(self, source: Source) -> None:
        """Close the source of a publisher that is gone, when all that it sent was received."""
        source.close()
        self._parted[id(source)] = source
        if source.held == 0:
            source.owner.close()
        self._remove(source)  # last: what a handler of a signal has interrupted is called again

    def _part_from_all(self) -> None:
        self._shut()
        for source in self._sources:
            self._part(source)
