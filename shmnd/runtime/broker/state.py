# SPDX-License-Identifier: Apache-2.0
"""The records that this process holds at the broker, for replay to a new one.

Plain records without locks: every change is one step on a dictionary, and a replay reads copies.
It may come at any call of any thread, while others are in the middle of theirs.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shmnd.status import NdError, Status

if TYPE_CHECKING:
    from shmnd.address import Address
    from shmnd.runtime.interfaces import BrokerLike, SegmentOwner

__all__ = ["Bound", "BrokerState", "Live", "report"]

_CONNECTIONS_PER_MESSAGE: Final = 64


@dataclass(slots=True)
class Bound:
    """A port that a listener or a connector holds."""

    adapter: str
    kind: str
    host: str
    port: int
    protocol: int
    backlog: int | None = None
    """The backlog of a listener that listens; None otherwise."""


class Live(NamedTuple):
    """An end of a connection that is past accept."""

    connection: int
    adapter: str
    peer_adapter: str
    local: Address
    peer: Address
    role: str
    protocol: int

    def wire(self) -> dict[str, Any]:
        """Return its fields in a `holds` request."""
        return {
            "connection": self.connection,
            "adapter": self.adapter,
            "peer_adapter": self.peer_adapter,
            "local": list(self.local),
            "peer": list(self.peer),
            "role": self.role,
            "protocol": self.protocol,
        }


class BrokerState:
    """Adapters, bound objects, armed requests and live connections of one process."""

    def __init__(self) -> None:
        self.adapters: dict[str, tuple[weakref.ref[SegmentOwner], Mapping[str, Any]]] = {}
        self.bound: dict[int, Bound] = {}
        self.armed: dict[tuple[int, int], None] = {}
        """(listener, connector), oldest first."""
        self.live: dict[tuple[str, int], Live] = {}
        """By role and connection: both ends may be of this process."""

    @property
    def listens(self) -> bool:
        """Whether other processes must be able to find a listener of this process."""
        return any(bound.backlog is not None for bound in self.bound.copy().values())

    def replay(self, client: BrokerLike) -> list[int]:
        """Replay everything to a new broker; return the objects that lost their ports."""
        for uid, (ref, table) in self.adapters.copy().items():
            adapter = ref()
            if adapter is None:
                continue  # its closing is under way
            held = functools.partial(self.adapters.__contains__, uid)
            report(client, held, "adapter", key=adapter._key, table=table)
            for seg, size, fd, writable in adapter._segments():
                segment = {"adapter": uid, "seg": seg, "size": size, "writable": writable}
                report(client, held, "segment", (fd,), **segment)
            if not held():
                client.post("adapter_close", adapter=uid)
        self._replay_connections(client)
        return [number for number in self.bound.copy() if not self._replay_bound(client, number)]

    def _replay_connections(self, client: BrokerLike) -> None:
        rest = iter(list(self.live.copy().values()))
        while page := list(itertools.islice(rest, _CONNECTIONS_PER_MESSAGE)):
            self._replay_page(client, page)

    def _replay_page(self, client: BrokerLike, page: list[Live]) -> None:
        while page := [each for each in page if self._lives(each)]:
            try:
                client.call("holds", connections=[each.wire() for each in page], done=False)
                break
            except NdError:
                if all(map(self._lives, page)):
                    raise
        for each in page:
            if not self._lives(each):
                client.post("closed", connection=each.connection)

    def _lives(self, end: Live) -> bool:
        return (end.role, end.connection) in self.live

    def _replay_bound(self, client: BrokerLike, number: int) -> bool:
        bound = self.bound.get(number)
        if bound is None:
            return True
        held = functools.partial(self.bound.__contains__, number)
        try:
            report(
                client,
                held,
                "bind",
                adapter=bound.adapter,
                object=number,
                kind=bound.kind,
                host=bound.host,
                port=bound.port,
                protocol=bound.protocol,
            )
            if bound.backlog is not None:
                report(client, held, "listen", object=number, backlog=bound.backlog)
                for listener, connector in self.armed.copy():
                    if listener == number:
                        report(client, held, "request", object=number, connector=connector)
        except NdError as err:
            if err.status is Status.SHARING_VIOLATION:
                return False  # another process was quicker
            raise
        if not held():
            client.post("close", object=number)
        return True


def report(
    client: BrokerLike,
    held: Callable[[], bool],
    op: str,
    fds: Sequence[int] = (),
    **fields: Any,
) -> None:
    """Report a record to a new broker. Another thread may end the record meanwhile; see `held`.

    `held` returns False once the record has ended. A refusal counts only while the record is held,
    because the broker may have learned of its end, or of the end of its adapter. The end may have
    been posted before this report, so the caller posts it again.
    """
    try:
        client.call(op, fds, **fields)
    except NdError:
        if held():
            raise
