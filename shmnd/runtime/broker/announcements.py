# SPDX-License-Identifier: Apache-2.0
"""What this process announces and watches at the broker, and reports to a new broker.

After a restart of the broker its clients come back one by one. A known record that is not yet
announced to the new broker is therefore kept: while its adapter is a neighbour that lives, and
otherwise for a few seconds.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.held import Held
from shmnd.common.records import Announcement, Entry, Watch
from shmnd.common.weak import Living
from shmnd.runtime.broker.state import report

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import BrokerLike, EngineOfNames, Event, SegmentOwner

__all__ = ["Names"]

_GRACE: Final = 5.0
"""Seconds after which a record that is not announced to a new broker counts as gone."""

_Watched = tuple[str, str]
_Announced = tuple["weakref.ref[SegmentOwner]", dict[str, Any]]


class Names:
    """The records and watches of one progress engine."""

    def __init__(self, engine: EngineOfNames) -> None:
        self._engine = engine
        self._announced: dict[int, _Announced] = {}
        self._watches: dict[_Watched, Living[Watch]] = {}
        self._leaving: set[_Watched] = set()  # names whose last watch ends now
        self._watching = threading.RLock()  # held briefly; a finaliser may end a watch inside
        self._unconfirmed: dict[tuple[str, int], float] = {}
        """Records that the present broker has not reported, and when they count as gone."""
        self._broker = ""  # the broker that the watches have their records from

    # -- what this process announces --

    def announce(
        self, adapter: SegmentOwner, kind: str, name: str, data: dict[str, Any]
    ) -> Announcement:
        """Announce a record of an adapter, and return the announcement."""
        number = self._engine.new_number()
        fields: dict[str, Any] = {"object": number, "kind": kind, "name": name, "data": data}
        announcement = Announcement(lambda: self._retract(number), kind, name)
        try:
            with Held(self._engine.rpc):
                self._engine.call(
                    "announce", caller="Directory.announce", adapter=adapter.uid, **fields
                )
                # After the answer, so not later than what the owner does with the announcement.
                since = time.monotonic_ns() // 1000
                self._announced[number] = weakref.ref(adapter), fields | {"since": since}
            return announcement
        except BaseException:
            self._announced.pop(number, None)
            self._engine.post("retract", object=number)  # the broker may have heard of it
            raise

    def _retract(self, number: int) -> None:
        self._announced.pop(number, None)  # first: a new broker does not hear of it
        self._engine.post("retract", object=number)

    # -- what others announce --

    def find(self, kind: str, name: str) -> list[Entry]:
        """Return the records that exist, from the broker."""
        with Held(self._engine.rpc):
            return _find_all(self._engine.client, kind, name)

    def watch(self, kind: str, name: str) -> Watch:
        """Return a new watch on the records of a kind, or of a name."""
        watch = Watch(kind, name, self._progress)
        key = kind, name
        with Held(self._engine.rpc):
            try:
                # First: another thread that ends the last watch of this name notifies the broker.
                self._enter(key, watch)
                self._engine.call("watch", caller="Directory.watch", kind=kind, name=name)
                self._broker = self._engine.client.broker
                for entry in _find_all(self._engine.client, kind, name):
                    watch.take(entry, gone=False)
            except BaseException:
                self._unwatch(watch)  # the broker may have heard of it
                raise
        watch.end = lambda: self._unwatch(watch)
        return watch

    def _enter(self, key: _Watched, watch: Watch) -> None:
        with Held(self._watching):
            watches = self._watches.setdefault(key, Living())
            watches.add(watch)
            self._watches[key] = watches  # also where a finaliser has just taken it away

    def _unwatch(self, watch: Watch) -> None:
        key = watch.kind, watch.name
        with Held(self._watching):
            watches = self._watches.get(key)
            if watches is None:
                return
            watches.discard(watch)
            if watches and key not in self._leaving:
                return
            self._leaving.add(key)
            self._engine.post("unwatch", kind=watch.kind, name=watch.name)
            if watches:  # a handler of a signal has begun one meanwhile
                self._engine.post("watch", kind=watch.kind, name=watch.name)
            else:
                self._watches.pop(key, None)
            self._leaving.discard(key)  # last: an interrupted end is continued

    def take(self, event: Event, *, gone: bool) -> None:
        """Pass a record that came or went to the watches that it concerns."""
        entry = _entry(event)
        self._unconfirmed.pop(entry.key, None)
        for watch in self._concerned(entry.kind, entry.name):
            watch.take(entry, gone=gone)

    def _concerned(self, kind: str, name: str) -> list[Watch]:
        keys = (kind, name), (kind, "")
        found = [watches for key in keys if (watches := self._watches.get(key)) is not None]
        return [watch for watches in found for watch in watches.snapshot()]

    # -- a new broker --

    def awaits(self, adapter: str) -> bool:
        """Return whether an adapter has a record that the present broker does not have yet."""
        return any(uid == adapter for uid, _ in list(self._unconfirmed))

    def replay(self, client: BrokerLike) -> None:
        """Announce everything to a new broker, and request the watched names."""
        for number, (ref, fields) in list(self._announced.items()):
            adapter = ref()
            if adapter is None or not self._engine.has(adapter):
                self._announced.pop(number, None)
                continue
            held = functools.partial(self._is_announced, number, adapter)
            report(client, held, "announce", adapter=adapter.uid, **fields)
            if not held():
                client.post("retract", object=number)
        # A call that was interrupted ends the session alone: the broker has heard of all others.
        same = client.broker == self._broker
        self._broker = client.broker
        deadline = time.monotonic() + _GRACE
        for key, watches in list(self._watches.items()):
            kind, name = key
            client.call("watch", kind=kind, name=name)
            present = {entry.key: entry for entry in _find_all(client, kind, name)}
            if key not in self._watches:
                client.post("unwatch", kind=kind, name=name)
            for watch in watches.snapshot():
                for missing in watch.keys() - present.keys():
                    if same:
                        watch.forget(missing)
                    else:
                        self._unconfirmed[missing] = deadline
                for entry in present.values():
                    watch.take(entry, gone=False)
        if self._unconfirmed:
            self._engine.wake_at(deadline)

    def _is_announced(self, number: int, adapter: SegmentOwner) -> bool:
        return number in self._announced and self._engine.has(adapter)

    def _progress(self) -> None:
        self._engine.progress()
        if self._unconfirmed:
            self._drop_unconfirmed()

    def _drop_unconfirmed(self) -> None:
        now = time.monotonic()
        for key, deadline in list(self._unconfirmed.items()):
            peer = self._engine.peer_adapter(key[0])
            if now < deadline:
                self._engine.wake_at(deadline)  # an earlier moment took the place of this one
                continue
            if peer is not None and not peer.dead:
                continue
            self._unconfirmed.pop(key, None)
            for watches in list(self._watches.values()):
                for watch in watches.snapshot():
                    watch.forget(key)

    def close_in_child(self) -> None:
        """Forget all names after fork: they are the parent's."""
        self._watching = threading.RLock()  # its holder is not here
        self._announced.clear()
        self._watches.clear()
        self._unconfirmed.clear()


def _find_all(client: BrokerLike, kind: str, name: str) -> list[Entry]:
    """Return all records of a kind and name, requested from the broker page by page."""
    found: dict[tuple[str, int], Entry] = {}
    after = 0
    while True:
        reply = client.call("find", caller="Directory.find", kind=kind, name=name, after=after)
        for record in reply["page"]:
            entry = _entry(record)
            found[entry.key] = entry
        after = reply["next"]
        if not after:
            return list(found.values())


def _entry(record: Event) -> Entry:
    return Entry(
        record["kind"],
        record["name"],
        record["data"],
        record["adapter"],
        record["process"],
        record["pid"],
        record["object"],
        record["since"],
        record["pid_space"],
    )
