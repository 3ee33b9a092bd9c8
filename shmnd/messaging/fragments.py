# SPDX-License-Identifier: Apache-2.0
"""The terms of two ends that carry messages, and a message being sent. See `messages.pyx`."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import ClassVar, Final

__all__ = ["LONGEST", "MOST_DEPTH", "EndTerms", "Outgoing"]

MOST_DEPTH: Final = 2048
"""The most fragments on the way in one direction: credits for more do not fit into a word."""
LONGEST: Final = (1 << 36) - 1
"""Bytes of the longest message, 64 GiB: more do not fit into that word."""

_LEAST_PIECE: Final = 1024
_MOST_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class EndTerms:
    """The terms that each side sends of itself, in the private data of the connection."""

    depth: int
    """Fragments that may be on the way to it, which has a receive for each."""
    piece: int
    """Bytes of a receive, its word included: the longest fragment."""
    address: int
    length: int
    token: int
    """The token of the `length` bytes at `address`: `Connection.memory`, which the peer may read
    and write."""

    _layout: ClassVar = struct.Struct("<8sIIQQI")
    _mark: ClassVar = b"shmnd-1\n"

    def pack(self) -> bytes:
        """Return the bytes for the peer."""
        return bytes(self._layout.pack(self._mark, *astuple(self)))

    @classmethod
    def unpack(cls, data: bytes) -> EndTerms | None:
        """Return the terms that the peer sent; None if it uses neither `listen` nor `connect`."""
        if len(data) < cls._layout.size or not data.startswith(cls._mark):
            return None
        terms = cls(*cls._layout.unpack_from(data)[1:])
        sane = 0 < terms.depth <= MOST_DEPTH and _LEAST_PIECE <= terms.piece <= _MOST_PIECE
        return terms if sane else None


@dataclass(slots=True)
class Outgoing:
    """A message being sent: its bytes, and how many of them were sent."""

    data: memoryview
    sent: int = 0
    begun: bool = False
