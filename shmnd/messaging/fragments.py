# SPDX-License-Identifier: Apache-2.0
"""What two ends that carry messages agree on, and a message on its way. See `messages.pyx`."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import ClassVar, Final

__all__ = ["LONGEST", "MOST_DEPTH", "Outgoing", "Terms"]

MOST_DEPTH: Final = 2048
"""Credits for more do not fit into a word."""
LONGEST: Final = (1 << 36) - 1
"""Bytes of the longest message, for the same reason: 64 GiB."""

_LEAST_PIECE: Final = 1024
_MOST_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Terms:
    """What each side states of itself in the private data of the connection."""

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
