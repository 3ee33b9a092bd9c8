# SPDX-License-Identifier: Apache-2.0
"""A link: which publishers and services it offers to others, and which of theirs it takes."""

from __future__ import annotations

import json
import os
import queue
import threading
from typing import TYPE_CHECKING, Any, Final, Self

import shmnd
from shmnd import ipc
from shmnd.directory import Directory
from shmnd.ipc.blackboard.keys import BLACKBOARD
from shmnd.ipc.event.notifying import EVENT
from shmnd.ipc.queue.queueing import QUEUE
from shmnd.ipc.service.service_user import SERVICE
from shmnd.ipc.topic.seats import SEAT, TOPIC

from . import wire
from .carrier import Carrier, matches
from .far_publishers import CarriedElsewhere, FarPublishers, NotYet
from .offered_topics import OfferedTopics
from .services import Asking, Offered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .session import Session

__all__ = ["Link"]

LINK: Final = "ipc.link"
"""The kind of the records of links: what their processes publish is never sent on."""
_STAYING: Final = {EVENT: "event", BLACKBOARD: "blackboard", QUEUE: "queue"}
"""The kinds of names that links do not carry."""
_POLL_SECONDS: Final = 1.0


class Link:
    """Carries topics and services whose names match patterns to the other links of a session.

    `objects` allows pickled objects, which run code of their sender where they are received.
    """

    def __init__(
        self,
        session: Session,
        topics: Sequence[str],
        services: Sequence[str],
        *,
        namespace: str | None = None,
        objects: bool = False,
        complain: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._carrier = Carrier(session, namespace, objects, complain)
        self.origin: Final = self._carrier.origin
        self._session = session
        self._services = tuple(services)
        self._events: queue.SimpleQueue[tuple[str, str, bool]] = queue.SimpleQueue()
        self._offered: dict[str, Offered] = {}
        self._asking: dict[tuple[str, str], Asking] = {}
        self._offers: dict[tuple[str, str], str] = {}
        """The tokens of the publishers of other links."""
        self._refused: set[str] = set()
        """Offers of other links that could not be taken, and are tried again."""
        self._closed = False
        self._adapter = shmnd.open_adapter(namespace=namespace)
        directory = Directory(self._adapter)
        self._topics = OfferedTopics(self._carrier, topics)
        self._woken = False
        self._far = FarPublishers(
            self._carrier, topics, directory, self._adapter.uid, self._on_claims
        )
        self._mark = directory.announce(LINK, self.origin)
        self._kinds = [directory.watch(kind) for kind in (TOPIC, SEAT, SERVICE, LINK)]
        self._patterns = {*topics, *services} - {"*"}
        self._staying = {directory.watch(kind): word for kind, word in _STAYING.items()}
        self._watch = ipc.watch(namespace=namespace)
        self._life = session.token(wire.key("link", self.origin))
        self._declared = self._declare()
        self._threads = [
            threading.Thread(target=self._run, name="link"),
            threading.Thread(target=self._await_changes, name="link: changes"),
        ]
        for each in self._threads:
            each.start()

    def _declare(self) -> list[Any]:
        """Listen to the offers, wishes and progress of other links; return the declarations."""
        words: tuple[tuple[str, tuple[str, ...]], ...]
        words = (("link", ()), ("pub", ()), ("srv", ()), ("want", (self.origin,)))
        declared = [
            self._session.follow(wire.key(word, *names) + "/**", self._token)
            for word, names in words
        ]
        taken = wire.key("taken", self.origin) + "/**"
        declared.append(self._session.listen(taken, self._on_taken))
        return declared

    # -- events come from any thread, and one thread handles them

    def _token(self, key: str, there: bool) -> None:
        self._events.put(("token", key, there))

    def _on_claims(self) -> None:
        """Let the thread check at once whether a publisher can be taken, or is to be left."""
        if not self._woken:
            self._woken = True
            self._events.put(("changed", "", True))

    def _on_taken(self, key: str, payload: bytes, attachment: bytes) -> None:
        try:
            _, _, uid, far = wire.parts(key)
        except ValueError:
            return
        outgoing = self._topics.of_publisher(uid)
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
            if word == "token":
                self._refused.discard(key)
                self._take(key, there=there)
            else:
                self._woken = False  # first: a claim that changes from here on wakes again
                for refused in tuple(self._refused):
                    self._take(refused, there=True)
            try:
                self._compare()
            except Exception as exc:
                self._report(exc)

    def _take(self, key: str, *, there: bool) -> None:
        """Act on a token of another link; after a failure, try again until it is withdrawn.

        A topic here may have publishers of another type, which are about to end, or memory and
        descriptors may be short: only the second failure is reported.
        """
        try:
            self._take_token(key, there=there)
        except NotYet:
            self._refused.add(key)
        except CarriedElsewhere as exc:
            self._carrier.say(str(exc))
            self._refused.add(key)
        except Exception as exc:
            if key in self._refused or not there:
                self._report(exc)
            if there:
                self._refused.add(key)
        else:
            self._refused.discard(key)

    def _report(self, failure: Exception) -> None:
        """Complain of a thing that cannot be carried: it must not end the rest."""
        if not self._closed:
            self._carrier.say(f"{type(failure).__name__}: {failure}")

    # -- this host

    def _compare(self) -> None:
        """Compare what there is on this host with the offers, and update the wishes."""
        for origin, uid in self._far.superseded():
            self._far.drop(origin, uid, drain=False)
            self._refused.add(self._offers[origin, uid])
        for kind in self._kinds:
            kind.changes()
        topics, seats, services, links = (kind.entries for kind in self._kinds)
        pids = {entry.pid for entry in links} | {os.getpid()}
        self._topics.compare([entry for entry in topics if entry.pid not in pids])
        self._offer_services(
            {
                entry.name
                for entry in services
                if entry.pid not in pids and entry.data.get("role") == "server"
            }
        )
        self._far.update_wishes([entry for entry in seats if entry.pid not in pids])
        self._report_names_that_stay()

    def _report_names_that_stay(self) -> None:
        """Complain of names that a pattern matches and that no link carries."""
        for watch, kind in self._staying.items():
            watch.changes()
            for name in {entry.name for entry in watch.entries}:
                if matches(name, self._patterns):
                    self._carrier.say(
                        f"{kind} {name!r} stays on this host: links carry topics and services"
                    )

    def _offer_services(self, names: set[str]) -> None:
        for name in [name for name in self._offered if name not in names]:
            self._offered.pop(name).close()
        for name in names - set(self._offered):
            if matches(name, self._services):
                self._offered[name] = Offered(self._carrier, name)

    # -- other hosts

    def _take_token(self, key: str, *, there: bool) -> None:
        try:
            word, origin, *rest = wire.parts(key)
        except ValueError:
            return
        if word == "want":
            uid, far, mode = rest
            outgoing = self._topics.of_publisher(uid)
            if outgoing is not None:
                outgoing.want(uid, far, mode, wanted=there)
        elif origin == self.origin:
            return
        elif word == "link":
            self._far.note_link(origin, there=there)
        elif word == "pub" and there:
            self._offers[origin, rest[0]] = key
            self._far.take(origin, rest[0], json.loads(rest[1]))
        elif word == "pub":
            self._offers.pop((origin, rest[0]), None)
            self._far.drop(origin, rest[0])
        elif word == "srv":
            self._take_service(origin, rest[0], there=there)

    def _take_service(self, origin: str, name: str, *, there: bool) -> None:
        if not there:
            asking = self._asking.pop((origin, name), None)
            if asking is not None:
                asking.close()
        elif (origin, name) not in self._asking and matches(name, self._services):
            self._asking[origin, name] = Asking(self._carrier, origin, name)

    # -- counts and the end

    def rows(self) -> list[dict[str, Any]]:
        """Return the counts of all that this link carried."""
        return self._carrier.rows()

    def close(self) -> None:
        """End the link: its publishers and servers here, and what it offered to others."""
        if self._closed:
            return
        self._closed = True
        self._events.put(("end", "", True))
        self._watch.close()
        for thread in self._threads:
            thread.join()
        self._session.end([self._life, *self._declared])
        self._topics.close()
        parts: list[Offered | Asking] = [*self._offered.values(), *self._asking.values()]
        for part in parts:
            part.close()
        self._far.close()
        self._session.close()
        self._adapter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
