# SPDX-License-Identifier: Apache-2.0
"""The publishers of other links that a link publishes again on this host."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from shmnd.ipc.topic.seats import BLOCK, TOPIC

from .carrier import OBJECTS, matches
from .claims import Claims
from .incoming import LATEST, WAITING, Incoming

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shmnd.directory import Directory, Entry

    from .carrier import Carrier

__all__ = ["CarriedElsewhere", "FarPublishers", "NotYet"]

_MOST_SEEN: Final = 4096
"""Publishers that have gone whose last number is kept, for one that is offered again."""


class CarriedElsewhere(Exception):
    """A far publisher comes by another link, which one may end: this one is to try again."""


class NotYet(Exception):
    """A far publisher cannot be taken at this moment; `wake` is called when it may be."""


class FarPublishers:
    """Those whose topics match a pattern. One thread calls, but for the ends of publishers."""

    def __init__(
        self,
        carrier: Carrier,
        patterns: Sequence[str],
        directory: Directory,
        adapter: str,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._carrier: Final = carrier
        self._patterns: Final = tuple(patterns)
        self._directory: Final = directory
        self._claims: Final = Claims(directory, adapter, wake)
        self._incoming: Final[dict[tuple[str, str], Incoming]] = {}
        self._wake: Final = wake
        self._endings: Final[dict[tuple[str, str], tuple[Incoming, threading.Thread]]] = {}
        """Those that have gone, and the threads that end them."""
        self.seen: Final[dict[str, int]] = {}
        """The last number of publishers that have gone, the youngest one last."""

    def take(self, origin: str, uid: str, offer: Any) -> None:
        """Publish again what a publisher of another link sends.

        CarriedElsewhere: another link does, and each sample would come twice. NotYet: the end of
        the same one is still to be carried, which would take its new samples, too.
        """
        name = str(offer["name"])
        if (origin, uid) in self._incoming or not matches(name, self._patterns):
            return
        if offer["type"] == "object" and not self._carrier.objects:
            self._carrier.say(OBJECTS.format(name))  # another link may carry it
            return
        if (origin, uid) in self._endings:
            raise NotYet
        if not self._claims.take(uid, origin):
            raise self._refusal(name, uid)
        taken = False
        try:
            if any(entry.adapter == uid for entry in self._directory.find(TOPIC, name)):
                self._carrier.say(f"{name}: another link carries this namespace to itself")
                return
            self._incoming[origin, uid] = Incoming(
                self._carrier, origin, uid, offer, self.seen.get(uid)
            )
            taken = True
        finally:
            if not taken:
                self._claims.release(uid)
        self.seen.pop(uid, None)  # not before: an offer that fails now is taken later

    def _refusal(self, name: str, uid: str) -> CarriedElsewhere | NotYet:
        """Return why a publisher is left to the link that has it."""
        which = "this link"
        if not self._claims.has(uid):
            holder = self._claims.holder(uid)
            if holder is None:
                return NotYet()  # it has been left since
            self.seen.pop(uid, None)  # what the other link carries is not lost
            which = f"the link of process {holder}"
        return CarriedElsewhere(
            f"{name}: {which} carries a publisher of it to here by another way, whose end is "
            "waited for"
        )

    def superseded(self) -> list[tuple[str, str]]:
        """Return the links and publishers that another link of this namespace had taken before."""
        return [each for each in self._claims.superseded() if each in self._incoming]

    def drop(self, origin: str, uid: str, *, drain: bool = True) -> None:
        """End a publisher that has gone there, once its samples are published here.

        Without `drain` those that are not published yet are dropped.
        """
        incoming = self._incoming.pop((origin, uid), None)
        if incoming is None:
            return
        incoming.withdraw()
        self.keep_place(incoming)  # a link that comes again may be faster than the end
        ending = threading.Thread(target=self._end, args=(incoming, drain))
        self._endings[origin, uid] = incoming, ending
        ending.start()

    def note_link(self, origin: str, *, there: bool) -> None:
        """Note that a link is there, or has ended: the ends of its publishers do not come then."""
        if not there:
            for incoming, _ in tuple(self._endings.values()):
                if incoming.origin == origin:
                    incoming.note_link(there=False)
        for incoming in self._incoming.values():
            if incoming.origin == origin:
                incoming.note_link(there=there)

    def _end(self, incoming: Incoming, drain: bool) -> None:
        try:
            incoming.close(drain=drain)
            self.keep_place(incoming)
        finally:
            try:
                self._claims.release(incoming.uid)
            finally:
                del self._endings[incoming.origin, incoming.uid]
                self._wake()

    def keep_place(self, incoming: Incoming) -> None:
        """Keep the last number of a publisher, from which it continues if it is offered again."""
        if incoming.mode is not None and incoming.last is not None:
            self.seen.pop(incoming.uid, None)  # it is the youngest one then
            self.seen[incoming.uid] = incoming.last
            while len(self.seen) > _MOST_SEEN:
                self.seen.pop(next(iter(self.seen)), None)

    def update_wishes(self, seats: Sequence[Entry]) -> None:
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

    def close(self) -> None:
        """End the publishers here; samples that are not published yet are dropped."""
        for incoming in self._incoming.values():
            incoming.close(drain=False)
        for _, thread in tuple(self._endings.values()):
            thread.join()
