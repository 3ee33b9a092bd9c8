# SPDX-License-Identifier: Apache-2.0
"""The compiled data plane, in the shape that the progress engine and the connectors use.

A module of its own, so that everything else of the connection handshake can be imported and tested
without the compiled part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmnd.ring import Link, PeerAdapter, Segment

if TYPE_CHECKING:
    from shmnd.common.owned import Owned
    from shmnd.runtime.interfaces import (
        Description,
        LinkLike,
        PairDescription,
        PeerLike,
        SegmentLike,
    )

__all__ = ["DataPlane"]


class DataPlane:
    """Makes and maps the objects that two processes share."""

    def create_link(self, local: PairDescription, remote: PairDescription) -> LinkLike:
        """Return a new link of a connection, for the passive side."""
        return Link.create(local, remote)

    def attach_link(
        self, fd: int, size: int, local: PairDescription, remote: PairDescription
    ) -> LinkLike:
        """Map a link that the other side made, and return it. The descriptor stays the caller's."""
        return Link.attach(fd, size, local, remote)

    def peer_adapter(
        self,
        uid: str,
        pid: int,
        doorbell_fd: int,
        pidfd: int,
        table: Description,
        same_user: bool,
    ) -> PeerLike:
        """Return a new record of an adapter of another process."""
        return PeerAdapter(uid, pid, doorbell_fd, pidfd, dict(table), same_user)

    def attach_segment(self, fd: Owned, size: int, writable: bool) -> SegmentLike:
        """Map a segment of another process and return it; takes the descriptor in any case."""
        return Segment.attach(fd, size, writable=writable)
