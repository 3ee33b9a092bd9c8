# SPDX-License-Identifier: Apache-2.0
"""The records of the broker: processes, their adapters and bound objects, and connections.

Records only; the rules for changing them are in `rendezvous.py` and `connections.py`. Every
record is compared by identity. Limits bound what one process can make the broker remember.
"""

from __future__ import annotations

import enum
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shmnd.broker.protocol import Address, Fields, PassedFd, Refusal
from shmnd.status import Status

__all__ = [
    "Adapter",
    "Bound",
    "Connection",
    "End",
    "Limits",
    "Outbox",
    "Outgoing",
    "Process",
    "Segment",
    "Stage",
    "require_room",
]


@dataclass(frozen=True)
class Limits:
    """What one process may make the broker keep; beyond it: INSUFFICIENT_RESOURCES."""

    adapters: int = 1024
    segments: int = 4096
    why_segments: str = ""
    """Where that limit comes from, if the broker has too few descriptors for a higher one."""
    objects: int = 65536
    connections: int = 65536
    waiting_bytes: int = 16 << 20
    """Private data and offers of its connects that wait in backlogs."""
    backlog: int = 4096
    """Of one listener; larger backlogs, and 0 (no limit), are silently clamped to this."""
    armed: int = 65536
    """Outstanding GetConnectionRequest calls of one listener."""
    channels: int = 16
    """Ends of channels between two processes that one of them has not taken."""
    records: int = 4096
    """Names that it announces."""
    watches: int = 4096
    """Names and kinds that it watches."""
    meetings: int = 65536
    """Adapters that its adapters meet without a connection."""


def require_room(used: int, limit: int, what: str, why: str = "") -> None:
    """Refuse a request that would make the broker keep more than a limit."""
    if used >= limit:
        reached = f"the limit of {limit} {what} at the broker is reached; release some"
        raise Refusal(Status.INSUFFICIENT_RESOURCES, f"{reached}: {why}" if why else reached)


class Outgoing(NamedTuple):
    """A message on its way to a client; without one, the client is to be dropped."""

    client: int
    message: Fields | None
    fds: tuple[PassedFd, ...] = ()
    later: bool = False
    """It may wait a moment for the next message to its client."""


class Outbox:
    """Collects the messages of one step of the broker, in order, for the owner of the sockets.

    First the doorbells, then the answer, then the events that follow from it: none sees a
    process before that has its doorbell.
    """

    def __init__(self) -> None:
        self.items: deque[Outgoing] = deque()
        self._first = 0

    def begin(self) -> None:
        """Begin a step: its doorbells and its answer go in front of its events."""
        self._first = len(self.items)

    def doorbell(self, to: Process, fds: Sequence[PassedFd], by: Process) -> None:
        """Send a process the end of a channel by which another one will ring it."""
        message = {"ev": "doorbell", "process": by.uid}
        self._put_first(Outgoing(to.client, message, tuple(fds)))

    def answer(
        self, client: int, message: Fields, fds: Sequence[PassedFd], later: bool = False
    ) -> None:
        """Answer the request of this step."""
        self._put_first(Outgoing(client, message, tuple(fds), later))

    def _put_first(self, item: Outgoing) -> None:
        self.items.insert(self._first, item)
        self._first += 1

    def event(
        self, to: Process | None, name: str, fds: Sequence[PassedFd] = (), /, **fields: object
    ) -> None:
        """Send an event to a process that is still connected."""
        if to is not None and to.present:
            self.items.append(Outgoing(to.client, {"ev": name, **fields}, tuple(fds)))


@dataclass(eq=False, slots=True)
class Process:
    """A client that has introduced itself (`hello`)."""

    client: int
    uid: str
    pid: int
    trusted_pid: int
    """As the kernel reported it for the socket, in the broker's PID namespace; 0 if outside."""
    pid_space: int
    """The PID namespace of `trusted_pid`, by the inode of that; 0 if there is none."""
    user: int
    """The user id that the kernel reported for the socket."""
    proven: bool
    """Its pidfd is its own, as far as the broker sees."""
    pidfd: PassedFd
    settled: bool
    """It has reported everything that it still holds from an earlier broker."""
    present: bool = True
    adapters: dict[str, Adapter] = field(default_factory=dict)
    objects: dict[int, Bound] = field(default_factory=dict)
    connections: dict[int, Connection] = field(default_factory=dict)
    knows: dict[str, set[int]] = field(default_factory=dict)
    """Adapters that were introduced to it, with the segments that it has."""
    unheard: set[str] = field(default_factory=set)
    """Adapters whose introduction was lost because it had no room for the descriptors."""
    met: dict[str, Process] = field(default_factory=dict)
    """Processes that shared a connection, or an attempt at one, with it."""
    channels: dict[str, weakref.WeakSet[PassedFd]] = field(default_factory=dict)
    """By ringing process: the ends of its channels that wait here to be sent."""
    segments: int = 0
    """How many its adapters have, those for tools included."""
    waiting_bytes: int = 0
    """The weights of its connects that wait in backlogs."""


@dataclass(eq=False, slots=True)
class Segment:
    """A piece of shared memory of an adapter."""

    size: int
    writable: bool
    fd: PassedFd


@dataclass(eq=False, slots=True)
class Adapter:
    """An opened adapter of a process."""

    uid: str
    process: Process
    table: Fields
    segments: dict[int, Segment] = field(default_factory=dict)
    known_by: dict[str, Process] = field(default_factory=dict)
    ends: dict[End, Connection] = field(default_factory=dict)
    """Its ends of connections. (A connection within one adapter has two.)"""
    shared: int = 0
    """How many of its segments peers receive: all but those for tools."""


@dataclass(eq=False, slots=True)
class Bound:
    """A listener or connector that holds a port."""

    number: int
    adapter: Adapter
    kind: str
    protocol: int
    host: str
    port: int
    # of a listener
    listening: bool = False
    backlog: int = 0
    armed: dict[int, None] = field(default_factory=dict)
    """Connectors that wait for a request, oldest first."""
    queue: dict[int, Connection] = field(default_factory=dict)
    """Requests that wait for a connector, oldest first."""
    # of a connector
    connection: Connection | None = None


class Stage(enum.Enum):
    """How far a connection has come, as far as the broker sees."""

    QUEUED = "queued"
    OFFERED = "offered"
    ACCEPTED = "accepted"


@dataclass(eq=False, slots=True)
class End:
    """One side of a connection.

    `process` is None while it is vacant: its process has lost the broker (or the other end was
    replayed first) and may still come to claim it. Once it is over it stays over.
    """

    adapter: str
    address: Address
    process: Process | None = None
    over: bool = False


@dataclass(eq=False, slots=True)
class Connection:
    """From connect until both ends are over."""

    number: int
    stage: Stage
    protocol: int
    active: End
    passive: End
    source: Bound | None = None
    """The active side's connector, as long as it is not closed."""
    listener: Bound | None = None
    """The listener in whose backlog it waits; None from the offer on."""
    connector: int = 0
    """The connector of the passive side to which it was offered."""
    private: str = ""
    """The private data of its Connect, until the passive side has it."""
    offer: str = ""
    """The terms of its Connect, which the broker does not read; as long as `private`."""
    weight: int = 0
    """Bytes charged to the active process while queued."""

    def other(self, end: End) -> End:
        """Return the end across."""
        return self.passive if end is self.active else self.active

    @property
    def identity(self) -> tuple[int, str, str]:
        """The number and adapters that identify the connection, also at the next broker."""
        return self.number, self.active.adapter, self.passive.adapter

    @property
    def key(self) -> tuple[int, Address, Address]:
        """The protocol and both addresses, which only one connection may have at a time."""
        return self.protocol, self.active.address, self.passive.address
