# SPDX-License-Identifier: Apache-2.0
"""Types of the objects of other rooms that the progress engine uses.

The engine is written against these types, not against the compiled data plane or the broker's
socket, so that each of its states can be tested without either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from shmnd.common.held import Lock
    from shmnd.common.owned import Owned
    from shmnd.common.records import Announcement, Entry, Watch
    from shmnd.status import Status

__all__ = [
    "Announcer",
    "BrokerLike",
    "DataPlaneLike",
    "Description",
    "EngineOfMeetings",
    "EngineOfNames",
    "Event",
    "LinkLike",
    "Moving",
    "NamesLike",
    "PairDescription",
    "PeerLike",
    "PolledByTurns",
    "PolledQueue",
    "SegmentLike",
    "SegmentOwner",
    "Ticker",
]

Description = Mapping[str, Any]
"""The description of an adapter for other processes; JSON."""

PairDescription = tuple[int, ...]
"""The description of a queue pair for the other end; empty when it is gone."""

Event = Mapping[str, Any]
"""A message of the broker."""


class Ticker(Protocol):
    """An object that polls its pending operations on request."""

    def _tick(self) -> None:
        """Poll once; never wait."""


class Moving(Protocol):
    """A queue pair, as seen by code that only asks whether its state may have changed."""

    @property
    def _state(self) -> int:
        """Its state, a `shmnd.handshake.queue_pair_link.QpState`."""

    def _moved_from(self, state: int) -> bool:
        """Return whether a connector that saw this state may see another; changes nothing."""


class PolledQueue(Protocol):
    """A completion queue, whose requests make progress when it is polled."""

    @property
    def _busy(self) -> bool:
        """Whether it has requests in progress."""

    @property
    def _attended(self) -> bool:
        """Whether a thread sleeps for it, or waits for a Notify."""

    @property
    def _notify_mode(self) -> int:
        """Not 0 while a Notify is pending."""

    _announcing: bool
    """Whether to ring once when a request is posted that does not end at once, for a sleeper."""

    @property
    def _polls(self) -> int:
        """The number of calls that took results."""

    @property
    def _connected(self) -> int:
        """The number of its queue pairs whose connection has not begun to end."""

    @property
    def _due(self) -> float | None:
        """The moment at which to poll its requests without a ring; None: only a ring is needed."""

    def _watch(self, on: bool) -> None:
        """Let peers ring when its requests can continue, as for a sleeping thread; or stop that."""

    def _poll(self) -> None:
        """Continue its requests as far as they go now; never wait."""


class PolledByTurns(Protocol):
    """An object that a task polls for a while before it sleeps; other tasks run between polls."""

    def _poll_window(self) -> float:
        """Return the seconds for which it polls."""

    def _begin_turns(self) -> None:
        """Note that a task polls from now on."""

    def _take_turn(self) -> None:
        """Poll once."""

    def _end_turns(self) -> None:
        """Note that the task polls no more."""


class SegmentOwner(Protocol):
    """An adapter, as the progress engine and the state kept for the broker see it."""

    @property
    def _key(self) -> str:
        """32 hexadecimal digits that only this process and the broker have."""

    @property
    def uid(self) -> str:
        """The name for peers: the hash of the key (`protocol.name_of`)."""

    def _segments(self) -> Iterable[tuple[int, int, int, bool]]:
        """Return its shared segments: number, bytes, descriptor, whether peers may write.

        The descriptor of each is open until the next one is asked for.
        """


class LinkLike(Protocol):
    """The memory that two connected queue pairs share."""

    @property
    def fd(self) -> int:
        """Its descriptor, on the side that made it."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def close_fd(self) -> None:
        """Close the descriptor; the memory stays."""


class PeerLike(Protocol):
    """The state of one adapter of another process, as far as it was received."""

    @property
    def uid(self) -> str:
        """32 hexadecimal digits."""

    @property
    def dead(self) -> bool:
        """Whether its process has died."""

    def add_segment(self, seg: int, segment: Any) -> None:
        """Keep a mapped segment under its number."""

    def remove_segment(self, seg: int) -> None:
        """Drop a segment that its owner has withdrawn."""

    def mark_dead(self) -> None:
        """Note that its process is dead: everything outstanding with it ends."""

    def mute(self) -> None:
        """Ring its process no more, in a forked child."""

    def ring(self) -> None:
        """Wake its process."""

    def segment(self, seg: int) -> Any:
        """Return a segment of its data that is mapped here now, or None."""

    @property
    def same_user(self) -> bool:
        """Whether its process belongs to the user of this process."""


class SegmentLike(Protocol):
    """A mapped piece of shared memory."""

    def close_fd(self) -> None:
        """Close the descriptor, if one is open; the mapping stays."""


class DataPlaneLike(Protocol):
    """The data plane."""

    def create_link(self, local: PairDescription, remote: PairDescription) -> LinkLike:
        """Return a new link of a connection, for the passive side."""

    def attach_link(
        self, fd: int, size: int, local: PairDescription, remote: PairDescription
    ) -> LinkLike:
        """Map a link that the other side made, and return it. The descriptor stays the caller's."""

    def peer_adapter(
        self,
        uid: str,
        pid: int,
        doorbell_fd: int,
        pidfd: int,
        table: Description,
        same_user: bool,
    ) -> PeerLike:
        """Return a new record of an adapter of another process.

        With a `pidfd` of -1 the private memory of the process is left alone.
        """

    def attach_segment(self, fd: Owned, size: int, writable: bool) -> SegmentLike:
        """Map a segment of another process and return it; takes the descriptor in any case."""


class EngineOfNames(Protocol):
    """The progress engine, as announced and watched names need it."""

    @property
    def rpc(self) -> Lock:
        """Held while the broker is asked."""

    @property
    def client(self) -> BrokerLike:
        """The session with the broker."""

    def new_number(self) -> int:
        """Return a number that no other object of this process has had."""

    def call(
        self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Ask the broker and wait for its reply."""

    def post(self, op: str, **fields: Any) -> None:
        """Send the broker a request that needs no reply."""

    def progress(self) -> None:
        """Do what can be done now; never wait."""

    def progress_by_calls(self) -> None:
        """Make the same progress, in calls that a program may make by the hundred."""

    def wake_at(self, when: float) -> None:
        """Wake every waiter at a moment of `time.monotonic()`."""

    def peer_adapter(self, uid: str) -> PeerLike | None:
        """Return the record of another process's adapter."""

    def has(self, adapter: SegmentOwner) -> bool:
        """Return whether an adapter is open, and known to the broker."""


class EngineOfMeetings(Protocol):
    """The progress engine, as meetings need it."""

    @property
    def rpc(self) -> Lock:
        """Held while the broker is asked."""

    def call(
        self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Ask the broker and wait for its reply."""

    def post(self, op: str, **fields: Any) -> None:
        """Send the broker a request that needs no reply."""

    def sync(self) -> None:
        """Take the messages that the broker has sent so far."""

    def has(self, adapter: SegmentOwner) -> bool:
        """Return whether an adapter is open, and known to the broker."""

    def require_peer(self, uid: str, call: str, gone: Status, name: str) -> PeerLike:
        """Return the record of another process's adapter."""


class NamesLike(Protocol):
    """Records and watches, as a directory needs them."""

    def announce(
        self, adapter: SegmentOwner, kind: str, name: str, data: dict[str, Any]
    ) -> Announcement:
        """Announce a record of an adapter, and return the announcement."""

    def find(self, kind: str, name: str) -> list[Entry]:
        """Return the records that exist."""

    def watch(self, kind: str, name: str) -> Watch:
        """Return a new watch on the records of a kind, or of a name."""


class _HasNames(Protocol):
    @property
    def names(self) -> NamesLike: ...


class Announcer(SegmentOwner, Protocol):
    """An adapter, as a directory needs it."""

    @property
    def _engine(self) -> _HasNames:
        """The progress engine of its process."""

    def _check_open(self, call: str) -> None:
        """Raise DEVICE_REMOVED when it is closed."""


class BrokerLike(Protocol):
    """The broker's client."""

    broker: str
    """Names the broker of the present session, or of the last one."""
    unsorted: list[Sized]
    """Containers of the messages that it has read and no call has taken."""

    @property
    def alive(self) -> bool:
        """Whether there is a session: False from the loss of the broker until the next one."""

    def broker_runs(self) -> bool:
        """Return whether a broker takes connections now; never waits, never starts one."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are events; the same for life."""

    def call(
        self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Ask the broker and return its reply; raise NdError for an error reply."""

    def call_by(
        self, until: float, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Return the reply, or raise TooLate at a moment; the session continues then."""

    def ask(self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any) -> int:
        """Ask without waiting; return the number of the request, or 0 if it could not be sent.

        The reply comes as an event `answer`.
        """

    def post(self, op: str, **fields: Any) -> None:
        """Send a message that needs no reply; never waits, never raises for a broker gone."""

    def events(self) -> list[tuple[dict[str, Any], list[int]]]:
        """Return unsolicited messages, without waiting; their descriptors belong to the caller."""

    def reconnect(self) -> None:
        """Find or start another broker and report to it what this process holds."""

    def close(self) -> None:
        """Close the connection to the broker."""
