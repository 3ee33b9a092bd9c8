# SPDX-License-Identifier: Apache-2.0
"""Types of the adapter and the queue pair, as connectors, listeners and regions use them.

The connection handshake is written against these, so that its every state can be tested without the
compiled data plane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from shmnd.runtime.interfaces import PairDescription, SegmentOwner

if TYPE_CHECKING:
    from shmnd.address import Address
    from shmnd.info import AdapterInfo
    from shmnd.ring import Arena, Registry
    from shmnd.runtime.bells import Bells
    from shmnd.runtime.progress import ProgressEngine

__all__ = ["AdapterLike", "MemoryAdapter", "QueuePairLike"]


class AdapterLike(SegmentOwner, Protocol):
    """An adapter, as its connectors, listeners and files see it."""

    @property
    def _engine(self) -> ProgressEngine:
        """The progress engine of this process."""

    @property
    def _host(self) -> str:
        """The address that it was opened with, normalised."""

    @property
    def _limits(self) -> AdapterInfo:
        """The limits that `Adapter.query` returns."""

    @property
    def _closed(self) -> bool:
        """Whether it is closed."""

    def _check_open(self, call: str) -> None:
        """Raise DEVICE_REMOVED when it is closed."""


class MemoryAdapter(AdapterLike, Protocol):
    """An adapter, as its regions, windows and queues see it."""

    @property
    def _registry(self) -> Registry:
        """The registered memory, and the tokens."""

    @property
    def _arena(self) -> Arena:
        """The memory of `allocate`."""

    @property
    def _bells(self) -> Bells:
        """Where its completion queues are rung."""


class QueuePairLike(Protocol):
    """A queue pair, as a connector sees it. States are those of
    `shmnd.handshake.queue_pair_link.QpState`.
    """

    @property
    def _adapter(self) -> AdapterLike:
        """The adapter that it was made by."""

    @property
    def _state(self) -> int:
        """The state that was read last: `_progress`, posting and polling read it from the link."""

    @property
    def _peer_gave_up(self) -> bool:
        """Whether the other side has ended, or died, before the connection was complete."""

    def _moved_from(self, state: int) -> bool:
        """Return whether a connector that saw this state may see another; changes nothing."""

    def _describe(self) -> PairDescription:
        """Return the numbers that the other end needs."""

    def _begin_connect(self) -> None:
        """Move from IDLE to CONNECTING: no other attempt can take it."""

    def _end_connect(self) -> None:
        """Move back to IDLE, after an attempt that failed before there was a link."""

    def _set_outbound_read_limit(self, limit: int) -> None:
        """Set the negotiated limit; called before `_attach`."""

    def _attach(
        self,
        link: Any,
        peer: Any,
        remote: PairDescription,
        active: bool,
        ends: tuple[Address, Address] | None = None,
    ) -> None:
        """Bind it to a link, between two addresses: here and there."""

    def _open(self) -> None:
        """Complete the connection, on the active side: both ends are connected."""

    def _abandon(self, rejected: bool) -> None:
        """Notify the other side through the link that this side rejects, or gives up."""

    def _detach(self) -> None:
        """Drop the link of a failed attempt, and be IDLE; posted Receives stay."""

    def _disconnect(self) -> bool:
        """Begin the end of the connection; return whether it is complete."""

    def _disconnect_step(self) -> bool:
        """Continue with that end; return whether it is complete."""

    def _progress(self) -> None:
        """Read the state of the link once."""

    def _on_release(self, callback: Callable[[], None] | None) -> None:
        """Set a function that is called once when the queue pair is closed or dropped, or None."""
