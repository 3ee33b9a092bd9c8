# SPDX-License-Identifier: Apache-2.0
"""The topics of this host that a link offers to the other links."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from shmnd import ipc

from .carrier import OBJECTS, matches
from .outgoing import Outgoing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmnd.directory import Entry

    from .carrier import Carrier

__all__ = ["OfferedTopics"]


class OfferedTopics:
    """Topics whose names match a pattern, while they have publishers here."""

    def __init__(self, carrier: Carrier, patterns: Sequence[str]) -> None:
        self._carrier: Final = carrier
        self._patterns: Final = tuple(patterns)
        self.outgoing: Final[dict[str, Outgoing]] = {}
        self.publishers: Final[dict[str, str]] = {}
        """Topics of the publishers that are offered, by their adapters."""
        self.routes: Final[dict[str, str]] = {}
        """The same, also of those that have gone: some of their samples may be still to be sent."""

    def compare(self, entries: Sequence[Entry]) -> None:
        """Offer the publishers that there are now, and no others."""
        there = {entry.adapter for entry in entries}
        for uid in [uid for uid in self.publishers if uid not in there]:
            self.outgoing[self.publishers.pop(uid)].leave(uid)
        for entry in entries:
            if entry.adapter in self.publishers or not matches(entry.name, self._patterns):
                continue
            offer = self._offer_of(entry)
            if offer is not None:
                outgoing = self._outgoing_of(entry.name)
                self.publishers[entry.adapter] = self.routes[entry.adapter] = entry.name
                outgoing.enter(entry.adapter, offer)
        self._forget()

    def _outgoing_of(self, name: str) -> Outgoing:
        found = self.outgoing.get(name)
        if found is None:
            found = self.outgoing[name] = Outgoing(self._carrier, name)
        return found

    def _offer_of(self, entry: Entry) -> str | None:
        """Return the offer of a publisher to other links; None for one that is not carried."""
        try:
            type_ = ipc.TopicType.from_description(json.loads(entry.data["type"])).description
        except (KeyError, TypeError, ValueError, RecursionError):
            self._carrier.say(
                f"{entry.name}: process {entry.pid} announces a type that makes no sense"
            )
            return None
        if type_ == "object" and not self._carrier.objects:
            self._carrier.say(OBJECTS.format(entry.name))
            return None
        return json.dumps(
            {
                "name": entry.name,
                "type": type_,
                "attributes": entry.data.get("attributes") or {},
                "history": entry.data.get("history", 0),
            }
        )

    def _forget(self) -> None:
        """Forget publishers whose ends were sent, and end the threads of topics without any."""
        for uid in self.routes.keys() - self.publishers.keys():
            if not self.outgoing[self.routes[uid]].offers(uid):
                del self.routes[uid]
        for name in self.outgoing.keys() - set(self.routes.values()):
            self.outgoing.pop(name).close()

    def of_publisher(self, uid: str) -> Outgoing | None:
        """Return the topic of a publisher, which may have gone; None if it is not offered."""
        return self.outgoing.get(self.routes.get(uid, ""))

    def close(self) -> None:
        """End the topics that are sent to other links."""
        for outgoing in self.outgoing.values():
            outgoing.close()
