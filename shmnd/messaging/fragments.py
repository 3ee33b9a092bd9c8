# SPDX-License-Identifier: Apache-2.0
"""Messages of any length over one queue pair: fragments, posted receives, credits.

Both sides post as many receives as the other may have fragments under way, and some for what the
two tell each other besides. A side sends a fragment only when it knows of a receive for it, so
every Send is over when its call returns: nothing waits for a sender that computes, and a message
that was not sent in time was not sent at all. Credits travel in the fragments of the opposite
direction, or in a message of their own when half of them are due.

A fragment begins with one word:

    bits 0..15   what it is: `_FIRST` or one of the next three
    bits 16..27  credits: receives posted again since the last word that counted them
    bits 28..63  bytes of the message from this fragment on, this one included

A first fragment discards a message that was cut short: its sender ran out of time, or was
interrupted. A message without such a word was posted by the peer's program itself, on the queue
pair, and is delivered as it is. Nothing here waits; `connection.py` does.
"""

from __future__ import annotations

import io
import struct
from collections import deque
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from shmnd.memory_region import Sge
from shmnd.status import MrFlag, NdError, OpFlag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmnd.adapter import Adapter
    from shmnd.completion_queue import Result
    from shmnd.queue_pair import QueuePair

__all__ = ["LONGEST", "MOST_DEPTH", "Messages", "Outgoing", "Terms"]

MOST_DEPTH: Final = 2048
"""Credits for more do not fit into a word."""
LONGEST: Final = (1 << 36) - 1
"""Bytes of the longest message, for the same reason: 64 GiB."""

_FIRST: Final = 0x5D10
_NEXT: Final = 0x5D11
_CREDITS: Final = 0x5D12
_GOODBYE: Final = 0x5D13
_WORD: Final = 8
_LINE: Final = 64
_BESIDE: Final = 3
"""Receives for messages other than fragments: two returns of credits, and the goodbye."""
_LEAST_PIECE: Final = 1024
_MOST_PIECE: Final = 1 << 16
_SILENT: Final = OpFlag.SILENT_SUCCESS
_INLINE: Final = OpFlag.SILENT_SUCCESS | OpFlag.INLINE


@dataclass(frozen=True, slots=True)
class Terms:
    """What each side tells of itself in the private data of the connection."""

    depth: int
    piece: int
    address: int
    length: int
    token: int

    _layout: ClassVar = struct.Struct("<8sIIQQI")
    _mark: ClassVar = b"shmnd-1\n"

    def pack(self) -> bytes:
        """Return the bytes for the peer."""
        return bytes(self._layout.pack(self._mark, *astuple(self)))

    @classmethod
    def unpack(cls, data: bytes) -> Terms | None:
        """Read what the peer sent; None when it does not speak this way."""
        if len(data) < cls._layout.size or not data.startswith(cls._mark):
            return None
        terms = cls(*cls._layout.unpack_from(data)[1:])
        sane = 0 < terms.depth <= MOST_DEPTH and _LEAST_PIECE <= terms.piece <= _MOST_PIECE
        return terms if sane else None


@dataclass(slots=True)
class Outgoing:
    """A message on its way: its bytes, and how many of them were sent."""

    data: memoryview
    sent: int = 0
    begun: bool = False


class Messages:
    """Both directions of one connection. One thread at a time; nothing here waits."""

    def __init__(self, adapter: Adapter, nbytes: int, depth: int) -> None:
        self.depth = depth
        self.piece = min(_MOST_PIECE, max(_LEAST_PIECE, nbytes // depth // _LINE * _LINE))
        self.receives = receives = depth + _BESIDE
        self._memory = adapter.allocate((receives + depth) * self.piece)
        self._region = adapter.create_memory_region()
        self._region.register(self._memory, MrFlag.ALLOW_LOCAL_WRITE).result()
        self._view = memoryview(self._memory)  # type: ignore[arg-type]  # until Python 3.12
        self._words = self._view.cast("Q")
        self._slots = [self._region.sge(at * self.piece, self.piece) for at in range(receives)]
        self._outgoing = receives * self.piece  # where the places for fragments to send begin
        self._token = self._region.local_token
        self._address = self._region.address
        self._place = 0
        self._sges: list[Sge | None] = [None] * depth
        self.inbox: deque[bytes] = deque()
        """Whole messages, oldest first."""
        self.credits = 0
        """Fragments that the peer has receives for."""
        self.goodbye = False
        """The peer has closed the connection: no message comes any more."""
        self.ended = ""
        """Why nothing arrives any more, when that is so."""
        self._partial: io.BytesIO | None = None
        self._left = 0
        self._owed = 0

    def post(self, qp: QueuePair) -> None:
        """Post all receives, before the connection is made."""
        self._qp = qp
        for at, sge in enumerate(self._slots):
            qp.receive(sge, at)

    def agree(self, theirs: Terms) -> None:
        """Take the lesser of what both sides offer."""
        self.depth = self.credits = min(self.depth, theirs.depth)
        self._most = min(self.piece, theirs.piece) - _WORD
        self._due = (self.depth + 1) // 2

    # -- sending --

    def send_whole(self, data: bytes | memoryview, nbytes: int) -> bool:
        """Send a message as one fragment; False when it is too long for that, or has no credit."""
        if nbytes > self._most or not self.credits:
            return False
        self._send_fragment(_FIRST, nbytes, data, nbytes)
        return True

    def push(self, out: Outgoing) -> bool:
        """Send fragments as far as credits go; True when the last one was sent."""
        total = out.data.nbytes
        while self.credits:
            left = total - out.sent
            length = min(left, self._most)
            piece = out.data[out.sent : out.sent + length]
            self._send_fragment(_NEXT if out.begun else _FIRST, left, piece, length)
            out.begun = True
            out.sent += length
            if out.sent == total:
                return True
        return False

    def _send_fragment(self, what: int, left: int, data: bytes | memoryview, nbytes: int) -> None:
        place = self._place
        begin = self._outgoing + place * self.piece
        end = begin + _WORD + nbytes
        self._words[begin >> 3] = what | self._owed << 16 | left << 28
        self._view[begin + _WORD : end] = data
        sge = self._sges[place]
        if sge is None or sge.length != nbytes + _WORD:
            sge = self._sges[place] = Sge(self._address + begin, nbytes + _WORD, self._token)
        self._qp.send(sge, flags=_SILENT)
        self._owed = 0
        self.credits -= 1
        self._place = place + 1 if place + 1 < len(self._sges) else 0

    def say_goodbye(self) -> None:
        """Send the goodbye: no message follows. Everything sent before arrives before."""
        self._say(_GOODBYE)

    def _say(self, what: int) -> None:
        word = (what | self._owed << 16).to_bytes(_WORD, "little")
        try:
            self._qp.send(Sge(word, _WORD, 0), flags=_INLINE)
        except NdError:
            return  # there is no connection any more; the receives say so
        self._owed = 0

    # -- receiving --

    def take(self, results: Sequence[Result]) -> None:
        """Take what arrived into the inbox, post the receives again, and count credits."""
        for result in results:
            if result.status:
                self.ended = self.ended or "the connection ended"
                continue
            slot = result.request_context
            nbytes = result.bytes_transferred
            begin = slot * self.piece
            word = self._words[begin >> 3] if nbytes >= _WORD else 0
            what = word & 0xFFFF
            end = begin + nbytes
            if what == _FIRST and word >> 28 == nbytes - _WORD:
                self._partial = None
                self.inbox.append(bytes(self._view[begin + _WORD : end]))
                self._owed += 1
            elif _FIRST <= what <= _GOODBYE:
                self._take_other(what, word >> 28, self._view[begin + _WORD : end])
            else:
                self.inbox.append(bytes(self._view[begin:end]))
                word = 0
            self._qp.receive(self._slots[slot], slot)
            if word & 0xFFF0000:
                self.credits = min(self.depth, self.credits + (word >> 16 & 0xFFF))
        if self._owed >= self._due:
            self._say(_CREDITS)

    def _take_other(self, what: int, left: int, data: memoryview) -> None:
        """Take a fragment, or a control message."""
        if what == _GOODBYE:
            self.goodbye = True
            return
        if what == _CREDITS:
            return
        self._owed += 1
        if what == _FIRST:
            self._partial, self._left = io.BytesIO(), left
        if self._partial is None or left != self._left or data.nbytes > left:
            self._partial = None
            self.ended = "the peer sent fragments that do not fit together"
            return
        self._partial.write(data)
        self._left -= data.nbytes
        if self._left == 0:
            self.inbox.append(self._partial.getvalue())
            self._partial = None

    def __repr__(self) -> str:
        return f"{self.depth} pieces of {self.piece} bytes a side"

    def close(self) -> None:
        """Release the memory."""
        self._region.close()
