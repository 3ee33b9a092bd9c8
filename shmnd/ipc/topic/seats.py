# SPDX-License-Identifier: Apache-2.0
"""The subscribers of one publisher: their processes and their seats."""

from __future__ import annotations

import hashlib
import logging
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from shmnd.common.arguments import integer
from shmnd.common.interruption import is_interruption, pass_on
from shmnd.ipc.errors import Closed
from shmnd.ipc.topic.source import Source
from shmnd.ipc.topic.writer_board import MOST_HELD
from shmnd.neighbours import Neighbour
from shmnd.status import NdError, NdMemoryError, Status

if TYPE_CHECKING:
    from shmnd.adapter import Adapter
    from shmnd.directory import Entry

__all__ = ["BLOCK", "MOST_BUFFER", "POLICIES", "SEAT", "TOPIC", "Seats", "Unreached", "mark_of"]

TOPIC: Final = "ipc.topic"
"""The kind of the records of publishers; each is named after its topic."""
SEAT: Final = "ipc.seat"
"""The kind of the records of subscribers; each is named after the adapter of its publisher."""
POLICIES: Final = ("drop_oldest", "drop_newest", "conflate", "block")
"""What a subscriber that falls behind loses; the numbers are those of the headers."""
_AGAIN: Final = 0.1
"""Seconds until an end is tried again for which no descriptor was free."""
DROP_NEWEST: Final = 1
BLOCK: Final = 3
_KEPT_BYTES: Final = 128
MOST_BUFFER: Final = 1 << 18
"""The most samples that a subscriber may fall behind."""
_LOG: Final = logging.getLogger("shmnd.ipc")


_K = TypeVar("_K")


def mark_of(adapter: str, ident: int) -> int:
    """Return the number by which a subscriber finds its seat.

    It is made of its adapter, too, whose name is the broker's word: another process that reads the
    number of the announcement, and announces the same, does not get the same mark.
    """
    digest = hashlib.blake2b(f"{adapter} {ident}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 | 1


class Unreached(Generic[_K]):
    """Ends of other processes that are tried again.

    No descriptor or memory was free for them, or the next broker does not know them yet.
    """

    def __init__(self) -> None:
        self._entries: dict[_K, Entry] = {}
        self.trouble: NdMemoryError | None = None
        """What kept it from the last one; None when it was raised, or all are reached."""
        self._why = ""
        self._next_try = 0.0

    def __str__(self) -> str:
        found = len(self._entries)
        return f"; {found} more cannot be reached: {self._why}" if found else ""

    def failed(self, key: _K, entry: Entry, why: Exception) -> None:
        """Try this one again, unless it has gone, or is not what it announced."""
        if isinstance(why, NdMemoryError):
            if key not in self._entries:
                self.trouble = why
        elif not (isinstance(why, NdError) and why.status is Status.DEVICE_NOT_READY):
            return
        self._entries[key] = entry
        self._why = str(why)

    def pop(self, key: _K) -> None:
        """Forget one that was reached, or has gone."""
        if self._entries.pop(key, None) is not None and not self._entries:
            self.trouble = None

    def due(self) -> list[Entry]:
        """Return those to be tried again now."""
        if not self._entries:
            return []
        now = time.monotonic()
        if now < self._next_try:
            return []
        self._next_try = now + _AGAIN
        return list(self._entries.values())

    def longest(self, left: float | None) -> float | None:
        """Return how long to sleep: until one is tried again."""
        if not self._entries:
            return left
        return _AGAIN if left is None else min(left, _AGAIN)

    def raise_trouble(self) -> None:
        """Raise once what keeps the program from one."""
        trouble, self.trouble = self.trouble, None
        if trouble is not None:
            raise trouble


@dataclass
class _Guest:
    seat: int
    entry: Entry
    neighbour: Neighbour
    policy: int
    evicted: bool = False
    unknown: bool = False
    """To the broker: it ends, or its process begins a new session and will announce it again."""


class Seats:
    """The seats of a board: granted to subscribers, and taken back."""

    def __init__(self, board: Any, adapter: Adapter, seats: int, history: int) -> None:
        self._board = weakref.proxy(board)  # which has these: one that is dropped closes at once
        self._adapter = adapter
        self._most = seats
        self._history = history
        self._guests: dict[tuple[str, int], _Guest] = {}
        self._free: list[int] = []
        self._made = 0
        self._waiting: dict[tuple[str, int], Entry] = {}
        self.unreached: Final[Unreached[tuple[str, int]]] = Unreached()

    @property
    def count(self) -> int:
        """How many subscribers there are that receive."""
        return sum(
            1
            for guest in list(self._guests.values())
            if not guest.evicted and not self._board._page_closed(guest.seat)
        )

    def come(self, entry: Entry) -> None:
        """Grant a subscriber a seat; its announcement is checked."""
        known = self._guests.get(entry.key)
        if known is not None:
            known.unknown = False
            return
        try:
            asked = _Asked.of(entry)
        except ValueError as exc:
            pass_on(exc)
            _LOG.debug("the subscriber in process %d gets no seat: %s", entry.pid, exc)
            return
        seat = self._take_seat()
        if seat < 0:
            self._refuse(entry)
            return
        try:
            self._admit(seat, entry, asked)
            self.unreached.pop(entry.key)
        except BaseException as exc:
            if is_interruption(exc) or not isinstance(exc, (NdError, ValueError, Closed)):
                if entry.key not in self._guests:  # it comes again
                    self._board._leave(seat)
                    self._free.append(seat)
                raise
            self._free.append(seat)
            self.unreached.failed(entry.key, entry, exc)
            _LOG.debug("the subscriber in process %d gets no seat: %s", entry.pid, exc)

    def come_again(self) -> None:
        """Try again to reach subscribers for which no descriptor or memory was free."""
        for entry in self.unreached.due():
            self.come(entry)

    def _take_seat(self) -> int:
        if not self._free and self._made >= self._most:
            self.drop_dead()
        if self._free:
            return self._free.pop()
        if self._made >= self._most:
            return -1
        self._made += 1
        return self._made - 1

    def _refuse(self, entry: Entry) -> None:
        """Queue a subscriber for a seat that another one leaves, and ring it."""
        self._waiting[entry.key] = entry
        self._board._refuse()
        try:
            with Neighbour(self._adapter, entry) as neighbour:
                neighbour.ring()
        except NdError:
            pass  # it has gone

    def _admit(self, seat: int, entry: Entry, asked: _Asked) -> None:
        neighbour = Neighbour(self._adapter, entry)
        try:
            page = neighbour.view(asked.segment, asked.offset, asked.page_bytes)
            self._board._more_lines(asked.buffer, self._history)
            kept, kept_segment = None, 0
            if asked.policy == DROP_NEWEST:
                lines = 1 << max(0, asked.buffer - 1).bit_length()
                kept = self._adapter.allocate_segment(lines * _KEPT_BYTES, peers="read")
                kept_segment = self._adapter.locate(kept)[0] + 1
            if entry.key in self._guests:
                raise ValueError("a call within this one has met it")  # while the broker was asked
            self._board._seat(
                seat, page, asked.held, asked.policy, asked.buffer, asked.first, kept, neighbour
            )
        except BaseException:
            neighbour.close()
            raise
        self._guests[entry.key] = _Guest(seat, entry, neighbour, asked.policy)
        self._board._admit(seat, asked.mark, kept_segment)
        neighbour.ring()

    def leave(self, entry: Entry) -> None:
        """Note that the broker knows a subscriber no more.

        One that lives and is open, or holds samples, keeps its seat: its process has lost its
        session, and will announce it again.
        """
        self._waiting.pop(entry.key, None)
        self.unreached.pop(entry.key)
        guest = self._guests.get(entry.key)
        if guest is not None:
            guest.unknown = True
            if self._is_over(guest):
                self._end(guest)

    def _is_over(self, guest: _Guest) -> bool:
        return guest.neighbour.dead or (guest.unknown and self._board._page_over(guest.seat))

    def _end(self, guest: _Guest) -> None:
        """Free the seat of a subscriber that is gone, with the samples that it held."""
        if self._guests.pop(guest.entry.key, None) is None:
            return
        self._board._leave(guest.seat)
        guest.neighbour.close()
        self._free.append(guest.seat)
        while self._waiting and self._free:
            self.come(self._waiting.pop(next(iter(self._waiting))))

    def drop_dead(self) -> None:
        """Take the seats of those whose processes have died, or that have ended unheard."""
        for guest in list(self._guests.values()):
            if self._is_over(guest):
                self._end(guest)

    def closed(self) -> list[int]:
        """Return the seats of closed subscribers that the publisher still waits for.

        A subscriber that holds samples keeps its seat when it is closed.
        """
        return [
            guest.seat
            for guest in list(self._guests.values())
            if guest.policy == BLOCK and not guest.evicted and self._board._page_closed(guest.seat)
        ]

    def _at(self, seat: int) -> _Guest | None:
        for guest in list(self._guests.values()):
            if guest.seat == seat:
                return guest
        return None

    def pid_of(self, seat: int) -> int | None:
        """Return the process of a subscriber."""
        guest = self._at(seat)
        return None if guest is None else guest.entry.pid

    def evicted(self, seat: int) -> None:
        """Note that the publisher has dropped a subscriber, which keeps what it holds."""
        guest = self._at(seat)
        if guest is not None:
            guest.evicted = True
            guest.neighbour.ring()

    def blocks(self, seat: int) -> bool:
        """Return whether the publisher waits for this subscriber."""
        guest = self._at(seat)
        return guest is not None and guest.policy == BLOCK

    def names(self, seats: list[int]) -> str:
        """Return which processes have no room."""
        processes = [f"process {pid}" for seat in seats if (pid := self.pid_of(seat)) is not None]
        if not processes:
            return "a subscriber that blocks had no room"
        verb = "has" if len(processes) == 1 else "have"
        return f"{', '.join(processes)} {verb} no room for another sample"

    def close(self) -> None:
        """Close the connections to all subscribers."""
        for guest in list(self._guests.values()):
            guest.neighbour.close()
        self._guests.clear()


@dataclass(frozen=True)
class _Asked:
    """What a subscriber announced, checked."""

    segment: int
    offset: int
    page_bytes: int
    held: int
    policy: int
    buffer: int
    first: int
    mark: int

    @classmethod
    def of(cls, entry: Entry) -> _Asked:
        data = entry.data
        held = _whole(data, "held", 1, MOST_HELD)
        return cls(
            _whole(data, "segment", 0, (1 << 29) - 1),
            _whole(data, "offset", 0, 1 << 46) // 64 * 64,
            Source.page_bytes(held),
            held,
            _whole(data, "policy", 0, len(POLICIES) - 1),
            _whole(data, "buffer", 1, MOST_BUFFER),
            _whole(data, "first", 0, 1 << 62),
            mark_of(entry.adapter, _whole(data, "ident", 1, (1 << 63) - 1)),
        )


def _whole(data: Any, name: str, least: int, most: int) -> int:
    found = integer(data.get(name))
    if found is None or not least <= found <= most:
        raise ValueError(f"{name} {data.get(name)!r} is outside {least}..{most}")
    return found
