# SPDX-License-Identifier: Apache-2.0
"""Other processes that are met by a name, without a connection: an extension.

The broker introduces two adapters to each other, as it does for a connection: each process gets
the other's pidfd, a doorbell of the two alone, and the segments of the other's adapter. From then
on neither needs the broker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from shmnd.common.arguments import shown, truth_given, within
from shmnd.common.closing import Closing
from shmnd.status import NdError, Status, error

if TYPE_CHECKING:
    from shmnd.adapter import Adapter
    from shmnd.common.records import Entry
    from shmnd.ring import Segment
    from shmnd.runtime.interfaces import PeerLike

__all__ = ["AGAIN", "Neighbour"]

_MOST_SEGMENT: Final = (1 << 29) - 1
"""Numbers above are not of memory that `Adapter.allocate` made."""
AGAIN: Final = 0.1
"""Seconds until memory that is not reported to the broker yet is asked for again."""


class Neighbour(Closing):
    """An adapter of another process, or of this one, that was found by a record.

    It stays what it is when the broker dies or the adapter that met it is closed; views of its
    memory stay valid after `close`, and after its death. DEVICE_NOT_READY: a new broker does not
    know the adapter yet, as its process has made no call since; try again.
    """

    def __init__(self, adapter: Adapter, entry: Entry) -> None:
        call = "Neighbour"
        adapter._check_open(call)
        self._adapter: Final = adapter
        self._closed = False
        self.name: Final[str] = entry.name
        """The name of the record by which it was found."""
        self.uid: Final[str] = entry.adapter
        """Names its adapter."""
        self.pid: Final[int] = entry.pid
        """Its process, as the broker sees it."""
        self._peer: Final[PeerLike] = self._meet(call)

    def _meet(self, call: str) -> PeerLike:
        engine = self._adapter._engine
        try:
            return engine.meetings.meet(self._adapter, self.uid, id(self), call)
        except NdError as exc:
            if exc.status is not Status.CONNECTION_INVALID or not engine.names.awaits(self.uid):
                raise
        raise self._not_ready(call, "itself")

    def _not_ready(self, call: str, what: str) -> NdError:
        """Return the error of a process that has not reported all to a new broker yet."""
        self._adapter._engine.wake_at(time.monotonic() + AGAIN)
        return error(
            Status.DEVICE_NOT_READY,
            call,
            f"process {self.pid} has not reported {what} to the next broker yet",
        )

    # -- its process --

    @property
    def dead(self) -> bool:
        """Whether its process has died."""
        return self._peer.dead

    @property
    def same_user(self) -> bool:
        """Whether the broker has found that its process belongs to the user of this process."""
        return self._peer.same_user

    def ring(self) -> None:
        """Wake the calls, event loops and descriptors that wait in its process, so that they poll.

        A process that is not asleep notices the ring at its next poll. Never waits and never fails;
        a dead process receives nothing.
        """
        if not self._closed:
            self._peer.ring()

    # -- its memory --

    def view(
        self,
        segment: int,
        offset: int = 0,
        nbytes: int | None = None,
        *,
        writable: bool = False,
    ) -> memoryview:
        """Return a view of memory that its adapter allocated, by what `Adapter.locate` returned.

        Without `nbytes` the view extends from the offset to the end. The memory is mapped only if
        its size is sealed, and the range is checked; it stays mapped until the last view of it is
        gone. Its owner may change its content, or use it for something else. A `writable` view
        needs memory of `peers="write"`. DEVICE_NOT_READY: a new broker does not know the memory
        yet, as its owner has made no call since; try again.
        """
        call = "Neighbour.view"
        self._check(call)
        number = within(call, 1, "segment", segment, 0, _MOST_SEGMENT)
        offset = within(call, 2, "offset", offset, 0)
        mapped = self._mapped(number, call)
        if nbytes is None:
            nbytes = max(1, mapped.size - offset)
        nbytes = within(call, 3, "nbytes", nbytes, 1)
        if offset + nbytes > mapped.size:
            raise error(
                Status.ACCESS_VIOLATION,
                call,
                f"bytes {shown(offset)} to {shown(offset + nbytes)} of segment {number} of process "
                f"{self.pid}, which has {mapped.size}",
            )
        writable = truth_given(call, 4, "writable", writable)
        if writable and not mapped.writable:
            raise error(
                Status.ACCESS_VIOLATION,
                call,
                f"segment {number} of process {self.pid} is read-only for others; its owner makes "
                'memory for writing by Adapter.allocate(nbytes, peers="write")',
            )
        view = memoryview(mapped)[offset : offset + nbytes]
        return view if writable else view.toreadonly()

    def has(self, segment: int) -> bool:
        """Return whether its adapter still shares a segment, by the last event of the broker."""
        return self._peer.segment(segment) is not None

    def _mapped(self, number: int, call: str) -> Segment:
        engine = self._adapter._engine
        found: Segment | None = self._peer.segment(number)
        # It may be announced and not yet mapped here. Where its descriptor was lost for want of
        # room, what the broker repeats may be under way as the first round ends.
        for _ in range(2):
            if found is None:
                engine.sync()
                found = self._peer.segment(number)
            if found is None:
                engine.require_heard(self.uid, call)  # that sync may have read that it was lost
                found = self._peer.segment(number)
        if found is not None:
            return found
        if engine.meetings.awaits(self.uid) or engine.names.awaits(self.uid):
            raise self._not_ready(call, f"segment {number}")
        raise error(
            Status.ACCESS_VIOLATION,
            call,
            f"process {self.pid} has announced no segment {number}, or has given it back",
        )

    # -- the end --

    def _check(self, call: str) -> None:
        if self._closed:
            raise error(Status.INVALID_HANDLE, call, "the neighbour is closed")

    def close(self) -> None:
        """End the meeting: segments that it announces later are not mapped here. Harmless twice."""
        if self._closed:
            return
        self._adapter._engine.meetings.part(self._adapter, self.uid, id(self))
        self._closed = True  # last: what a handler of a signal has interrupted is called again

    def __repr__(self) -> str:
        state = "closed" if self._closed else "dead" if self.dead else "alive"
        return f"<Neighbour {self.name!r} {state}, process {self.pid}>"
