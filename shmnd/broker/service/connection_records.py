# SPDX-License-Identifier: Apache-2.0
"""The records of connections: which end is whose, and what follows when one is over.

Each connection has two ends. An end is occupied by a process, vacant (its process has lost the
broker and may come back), or over; the requests are in `connections.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from weakref import WeakSet

from shmnd.broker.access import is_one_user
from shmnd.broker.protocol import FIRST_FOR_TOOLS, Address, PassedFd, Refusal
from shmnd.broker.service.descriptor_limit import explained
from shmnd.broker.service.ports import PortSpace
from shmnd.broker.service.records import (
    Adapter,
    Bound,
    Connection,
    End,
    Limits,
    Outbox,
    Process,
    Stage,
)
from shmnd.status import Status

__all__ = ["Ends"]


class Ends:
    """All connections, with the steps by which their ends change."""

    def __init__(
        self,
        ports: PortSpace[Bound],
        adapters: Mapping[str, Adapter],
        outbox: Outbox,
        limits: Limits,
        channel: Callable[[], tuple[PassedFd, PassedFd]],
        place: str,
    ) -> None:
        self.records: dict[tuple[int, str, str], Connection] = {}
        self.undecided: set[Connection] = set()
        """Those that the passive side has neither accepted nor refused."""
        self.changes = 0
        """The number of connections that have begun, and of those decided or ended undecided."""
        self._tuples: dict[tuple[int, Address, Address], Connection] = {}
        self._vacant: dict[str, dict[tuple[int, str, str], Connection]] = {}
        """By adapter: the connections with an end that waits to be claimed for it."""
        self._ports = ports
        self._adapters = adapters
        self._outbox = outbox
        self._limits = limits
        self._channel = channel
        self._place = place

    def introduce(self, adapter: Adapter, to: Process | None) -> None:
        """Introduce an adapter to a process, with those of its segments that it does not have yet.

        INSUFFICIENT_RESOURCES changes nothing.
        """
        if to is None:
            return
        if adapter.uid not in to.knows:
            self._introduce_adapter(adapter, to)
            owner = adapter.process
            to.knows[adapter.uid] = set()
            adapter.known_by[to.uid] = to
            owner.met[to.uid] = to
            to.met[owner.uid] = owner
        given = to.knows[adapter.uid]
        for number in _missing(adapter, given):
            segment = adapter.segments[number]
            given.add(number)
            self._outbox.event(
                to,
                "segment",
                [segment.fd],
                adapter=adapter.uid,
                seg=number,
                size=segment.size,
                writable=segment.writable,
            )

    def _introduce_adapter(self, adapter: Adapter, to: Process) -> None:
        """Introduce an adapter to a process, with a doorbell to its owner.

        The channel is theirs alone, so neither can harm a third process by it. A process that can
        ring the owner already closes the new end, and the owner then closes the other.
        """
        owner = adapter.process
        alike = owner.user == to.user
        ringing, listening = self._new_channel(owner, to)
        self._outbox.doorbell(owner, [listening], to)
        self._outbox.event(
            to,
            "peer",
            [ringing, owner.pidfd],
            adapter=adapter.uid,
            process=owner.uid,
            pid=owner.pid,
            same_user=alike and owner.proven and to.proven,
            one_user=alike and ((owner.proven and to.proven) or is_one_user(owner.user)),
            table=adapter.table,
        )

    def _new_channel(self, owner: Process, to: Process) -> tuple[PassedFd, PassedFd]:
        """Return the two ends of a new channel; only the messages yet to be sent keep them open."""
        waiting = owner.channels.setdefault(to.uid, WeakSet())
        if len(waiting) >= self._limits.channels:
            raise Refusal(
                Status.INSUFFICIENT_RESOURCES,
                f"processes {owner.pid} and {to.pid} do not take what the broker has for them:"
                f" {len(waiting)} descriptors by which one is to ring the other",
            )
        try:
            ends = self._channel()
        except OSError as exc:
            raise Refusal(
                Status.INSUFFICIENT_RESOURCES,
                "the broker has no descriptors for what one process rings another by:"
                f" {explained(exc)}",
            ) from None
        waiting.update(ends)
        return ends

    def _refuse(self, connection: Connection, private: str, why: Refusal | None = None) -> None:
        active = connection.active.process
        self._remove(connection)
        self._outbox.event(
            active,
            "refused",
            connection=connection.number,
            status=int(Status.CONNECTION_REFUSED if why is None else why.status),
            message="the peer refused or gave up" if why is None else why.message,
            private=private,
        )

    def _withdraw(self, connection: Connection, why: str = "") -> None:
        """End a connection that its active side has given up; notify the passive side."""
        passive = None if connection.passive.over else connection.passive.process
        if connection.stage is Stage.ACCEPTED:
            self._end(connection, connection.active)
        else:
            self._remove(connection)
        reason = {"why": why} if why else {}
        self._outbox.event(passive, "withdrawn", connection=connection.number, **reason)

    def _end(self, connection: Connection, end: End) -> None:
        """End one end of an accepted connection; the second one removes the record."""
        other = connection.other(end)
        if connection.stage is not Stage.ACCEPTED:
            # Not what a careful client says here, but what it means is clear.
            if end is connection.active:
                self._withdraw(connection)
            else:
                self._refuse(connection, "")
            return
        end.over = True
        self._leave(connection, end)
        self._release_tuple(connection)
        if end is connection.active:
            self._release_source(connection)
        if other.over or other.process is None:
            self._remove(connection)

    def _vacate(self, connection: Connection, end: End) -> None:
        """Leave an end to the process that lost the broker, as long as the other end lives."""
        other = connection.other(end)
        self._leave(connection, end)
        end.process = None
        self._release_tuple(connection)
        if other.over or other.process is None:
            self._remove(connection)
        else:
            self._vacant.setdefault(end.adapter, {})[connection.identity] = connection

    def _occupy(self, connection: Connection, end: End, adapter: Adapter) -> None:
        end.process = adapter.process
        adapter.ends[end] = connection
        adapter.process.connections[connection.number] = connection
        self._await_no_claim(connection, end)

    def _leave(self, connection: Connection, end: End) -> None:
        """Take one end out of the lists of its process and adapter."""
        adapter = self._adapters.get(end.adapter)
        if adapter is not None:
            adapter.ends.pop(end, None)
        other = connection.other(end)
        known = {} if end.process is None else end.process.connections
        # Its process may have claimed the number for another one since this end was over.
        mine = known.get(connection.number) is connection
        if mine and (other.process is not end.process or other.over):
            del known[connection.number]
        self._await_no_claim(connection, end)

    def _await_no_claim(self, connection: Connection, end: End) -> None:
        """Take an end out of the vacant ones: it is occupied, or over."""
        vacant = self._vacant.get(end.adapter) if self._vacant else None
        if vacant is not None:
            vacant.pop(connection.identity, None)
            if not vacant:
                del self._vacant[end.adapter]

    def _unqueue(self, connection: Connection) -> None:
        """Take a connect out of its listener's backlog, if it waits in one."""
        listener, connection.listener = connection.listener, None
        if listener is not None:
            listener.queue.pop(connection.number, None)
            active = connection.active.process
            assert active is not None, "a connect is queued only as long as its process is there"
            active.waiting_bytes -= connection.weight

    def _release_source(self, connection: Connection) -> None:
        """Free the active side's connector for another attempt."""
        source, connection.source = connection.source, None
        if source is not None:
            source.connection = None

    def _release_tuple(self, connection: Connection) -> None:
        if self._tuples.get(connection.key) is connection:
            del self._tuples[connection.key]

    def _remove(self, connection: Connection) -> None:
        self._unqueue(connection)
        self._release_tuple(connection)
        self._release_source(connection)
        for end in (connection.active, connection.passive):
            if not end.over:
                end.over = True
                self._leave(connection, end)
        self.records.pop(connection.identity, None)
        self._decide(connection)

    def _decide(self, connection: Connection) -> None:
        """Note that a connection is decided or has ended. Changes nothing for a decided one."""
        if connection in self.undecided:
            self.undecided.remove(connection)
            self.changes += 1


def _missing(adapter: Adapter, given: set[int]) -> list[int]:
    """Return the segments that a process of these does not have yet, in order.

    Only new ones are visited: an adapter may have thousands, and each of its connections asks.
    """
    found: list[int] = []
    left = adapter.shared - len(given)
    for number in reversed(adapter.segments) if left else ():
        if number not in given and number < FIRST_FOR_TOOLS:
            found.append(number)
            if len(found) == left:
                break
    found.reverse()
    return found
