# SPDX-License-Identifier: Apache-2.0
"""A link: which publishers and services it offers to others, and which of theirs it takes."""

from __future__ import annotations

import fnmatch
import json
import os
import queue
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import shmnd
from shmnd import ipc
from shmnd.directory import Directory
from shmnd.ipc.service.server import SERVICE
from shmnd.ipc.topic.seats import BLOCK, SEAT, TOPIC

from . import wire
from .incoming import LATEST, WAITING, Incoming, Traffic
from .outgoing import Outgoing
from .services import Asking, Offered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmnd.directory import Entry

    from .session import Wire

__all__ = ["Link"]

LINK: Final = "ipc.link"
"""The kind of the records of links: what their processes publish is never sent on."""
_POLL_SECONDS: Final = 1.0
_MOST_SEEN: Final = 4096
"""Publishers that have gone whose last number is kept, for one that is offered again."""


class Closing(Protocol):
    """A part that is ended with the link."""

    def close(self) -> None:
        """End it."""


class Link:
    """Carries topics and services whose names match patterns to the other links of a session.

    `objects` allows pickled objects, which run code of their sender where they are received.
    """

    def __init__(
        self,
        session: Wire,
        topics: Sequence[str],
        services: Sequence[str],
        *,
        namespace: str | None = None,
        objects: bool = False,
        complain: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.origin: Final = secrets.token_hex(8)
        """The number that stands in all keys of this link."""
        self._session = session
        self._topics = tuple(topics)
        self._services = tuple(services)
        self._namespace = namespace
        self._objects = objects
        self._complain = complain
        self._told: set[str] = set()
        self._events: queue.SimpleQueue[tuple[str, str, bool]] = queue.SimpleQueue()
        self._traffic: dict[tuple[str, str, str], Traffic] = {}
        self._outgoing: dict[str, Outgoing] = {}
        self._publishers: dict[str, str] = {}
        """Topics of the publishers that are offered, by their adapters."""
        self._routes: dict[str, str] = {}
        """The same, also of those that have gone: some of their samples may be still to be sent."""
        self._incoming: dict[tuple[str, str], Incoming] = {}
        self._seen: dict[str, int] = {}
        self._endings: list[threading.Thread] = []
        self._offered: dict[str, Offered] = {}
        self._asking: dict[tuple[str, str], Asking] = {}
        self._closed = False
        self._adapter = shmnd.open_adapter(namespace=namespace)
        directory = Directory(self._adapter)
        self._mark = directory.announce(LINK, self.origin)
        self._kinds = [directory.watch(kind) for kind in (TOPIC, SEAT, SERVICE, LINK)]
        self._watch = ipc.watch(namespace=namespace)
        words: tuple[tuple[str, tuple[str, ...]], ...]
        words = (("pub", ()), ("srv", ()), ("want", (self.origin,)))
        self._declared = [
            session.follow(wire.key(word, *names) + "/**", self._token) for word, names in words
        ]
        taken = wire.key("taken", self.origin) + "/**"
        self._declared.append(session.listen(taken, self._on_taken))
        self._threads = [
            threading.Thread(target=self._run, name="link"),
            threading.Thread(target=self._await_changes, name="link: changes"),
        ]
        for each in self._threads:
            each.start()

    # -- what happens comes as events, from any thread, and is handled by one

    def _token(self, key: str, there: bool) -> None:
        self._events.put(("token", key, there))

    def _on_taken(self, key: str, payload: bytes, attachment: bytes) -> None:
        try:
            _, _, uid, far = wire.parts(key)
        except ValueError:
            return
        outgoing = self._outgoing.get(self._routes.get(uid, ""))
        if outgoing is not None:
            outgoing.taken(uid, far, int.from_bytes(payload[:8], "little"))

    def _await_changes(self) -> None:
        while not self._closed:
            try:
                self._watch.wait(_POLL_SECONDS)
            except ipc.Closed:
                return
            self._events.put(("changed", "", True))

    def _run(self) -> None:
        while True:
            word, key, there = self._events.get()
            if word == "end":
                return
            try:
                if word == "token":
                    self._take_token(key, there=there)
                self._compare()
            except Exception as exc:
                if self._closed:
                    return
                # One topic that cannot be carried must not end the others.
                self._say(f"{type(exc).__name__}: {exc}")

    def _say(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._complain(text)

    # -- this host

    def _compare(self) -> None:
        """Compare what there is on this host with the offers, and update the wishes."""
        for kind in self._kinds:
            kind.changes()
        topics, seats, services, links = (kind.entries for kind in self._kinds)
        pids = {entry.pid for entry in links} | {os.getpid()}
        self._offer_topics([entry for entry in topics if entry.pid not in pids])
        self._forget_topics()
        self._offer_services(
            {
                entry.name
                for entry in services
                if entry.pid not in pids and entry.data.get("role") == "server"
            }
        )
        self._update_wishes([entry for entry in seats if entry.pid not in pids])

    def _update_wishes(self, seats: Sequence[Entry]) -> None:
        """Ask the other links for the publishers of theirs that have subscribers here."""
        wanted: dict[str, str] = {}
        seated: dict[str, set[tuple[str, int]]] = {}
        for entry in seats:
            seated.setdefault(entry.name, set()).add(entry.key)
            waits = entry.data.get("policy") == BLOCK
            if waits or entry.name not in wanted:
                wanted[entry.name] = WAITING if waits else LATEST
        for incoming in self._incoming.values():
            kept = LATEST if incoming.history else None
            uid = incoming.publisher_uid
            incoming.seat(seated.get(uid, set()))
            incoming.want(wanted.get(uid, kept))

    def _offer_topics(self, entries: Sequence[Entry]) -> None:
        there = {entry.adapter for entry in entries}
        for uid in [uid for uid in self._publishers if uid not in there]:
            self._outgoing[self._publishers.pop(uid)].leave(uid)
        for entry in entries:
            if entry.adapter in self._publishers or not _chosen(entry.name, self._topics):
                continue
            offer = self._offer_of(entry)
            if offer is None:
                continue
            if entry.name not in self._outgoing:
                self._outgoing[entry.name] = Outgoing(
                    self._session,
                    self.origin,
                    entry.name,
                    self._counts("out", "topic", entry.name),
                    self._namespace,
                    self._say,
                    objects=self._objects,
                )
            self._publishers[entry.adapter] = self._routes[entry.adapter] = entry.name
            self._outgoing[entry.name].enter(entry.adapter, offer)

    def _offer_of(self, entry: Entry) -> str | None:
        """Return the offer of a publisher to other links; None for one that is not carried."""
        try:
            type_ = ipc.TopicType.from_description(json.loads(entry.data["type"])).description
        except (KeyError, TypeError, ValueError, RecursionError):
            self._say(f"{entry.name}: process {entry.pid} announces a type that makes no sense")
            return None
        if type_ == "object" and not self._objects:
            self._say(f"{entry.name} carries objects, which take --objects")
            return None
        return json.dumps(
            {
                "name": entry.name,
                "type": type_,
                "attributes": entry.data.get("attributes") or {},
                "history": entry.data.get("history", 0),
            }
        )

    def _forget_topics(self) -> None:
        """Forget publishers whose ends were sent, and end the threads of topics without any."""
        for uid in self._routes.keys() - self._publishers.keys():
            if not self._outgoing[self._routes[uid]].offers(uid):
                del self._routes[uid]
        for name in self._outgoing.keys() - set(self._routes.values()):
            self._outgoing.pop(name).close()

    def _offer_services(self, names: set[str]) -> None:
        for name in [name for name in self._offered if name not in names]:
            self._offered.pop(name).close()
        for name in names - set(self._offered):
            if _chosen(name, self._services):
                self._offered[name] = Offered(
                    self._session,
                    self.origin,
                    name,
                    self._counts("out", "service", name),
                    self._namespace,
                )

    # -- other hosts

    def _take_token(self, key: str, *, there: bool) -> None:
        try:
            word, origin, *rest = wire.parts(key)
        except ValueError:
            return
        if word == "want":
            uid, far, mode = rest
            outgoing = self._outgoing.get(self._routes.get(uid, ""))
            if outgoing is not None:
                outgoing.want(uid, far, mode, wanted=there)
        elif origin == self.origin:
            return
        elif word == "pub":
            self._take_publisher(origin, rest[0], json.loads(rest[1]), there=there)
        elif word == "srv":
            self._take_service(origin, rest[0], there=there)

    def _take_publisher(self, origin: str, uid: str, told: Any, *, there: bool) -> None:
        name = str(told["name"])
        if not there:
            incoming = self._incoming.pop((origin, uid), None)
            if incoming is not None:
                incoming.withdraw()
                self._keep_place(incoming)  # a link that comes again may be faster than the end
                ending = threading.Thread(target=self._end, args=(incoming,))
                self._endings = [each for each in self._endings if each.is_alive()]
                self._endings.append(ending)
                ending.start()
            return
        if (origin, uid) in self._incoming or not _chosen(name, self._topics):
            return
        if any(entry.adapter == uid for entry in Directory(self._adapter).find(TOPIC, name)):
            self._say(f"{name}: another link carries this namespace to itself")
            return
        incoming = Incoming(
            self._session,
            self.origin,
            origin,
            uid,
            {**told, "objects": self._objects},
            self._counts("in", "topic", name),
            self._namespace,
            self._seen.pop(uid, None),
            self._say,
        )
        self._incoming[origin, uid] = incoming

    def _end(self, incoming: Incoming) -> None:
        incoming.close()
        self._keep_place(incoming)

    def _keep_place(self, incoming: Incoming) -> None:
        if incoming.mode is not None and incoming.last is not None:
            self._seen.pop(incoming.uid, None)  # it is the youngest one then
            self._seen[incoming.uid] = incoming.last
            while len(self._seen) > _MOST_SEEN:
                self._seen.pop(next(iter(self._seen)), None)

    def _take_service(self, origin: str, name: str, *, there: bool) -> None:
        if not there:
            asking = self._asking.pop((origin, name), None)
            if asking is not None:
                asking.close()
        elif (origin, name) not in self._asking and _chosen(name, self._services):
            self._asking[origin, name] = Asking(
                self._session, origin, name, self._counts("in", "service", name), self._namespace
            )

    # -- counts and the end

    def _counts(self, direction: str, kind: str, name: str) -> Traffic:
        return self._traffic.setdefault((direction, kind, name), Traffic(direction, kind, name))

    def rows(self) -> list[dict[str, Any]]:
        """Return the counts of all that this link carried."""
        return [traffic.as_row() for _, traffic in sorted(self._traffic.items())]

    def close(self) -> None:
        """End the link: its publishers and servers here, and what it offered to others."""
        if self._closed:
            return
        self._closed = True
        self._events.put(("end", "", True))
        self._watch.close()
        for thread in self._threads:
            thread.join()
        self._session.end(self._declared)
        parts: list[Closing] = [*self._outgoing.values(), *self._offered.values()]
        for part in [*parts, *self._asking.values()]:
            part.close()
        for incoming in self._incoming.values():
            incoming.close(drain=False)
        for thread in self._endings:
            thread.join()
        self._session.close()
        self._adapter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _chosen(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
