# SPDX-License-Identifier: Apache-2.0
"""Memory of the random programs: where data comes from and goes to, and which ends may reach it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from shmnd import MrFlag
from spi.harness import FILL, LOCAL, REMOTE, Buffer

if TYPE_CHECKING:
    from reference.model import Side
    from spi.harness import End

_NOISE: Final = random.Random(20261121).randbytes(1 << 21)


def payload(number: int, length: int) -> bytes:
    """Bytes that no other message has, as far as so many can differ."""
    start = number * 7919 % (len(_NOISE) - length) if length < len(_NOISE) else 0
    body = _NOISE[start : start + length]
    return number.to_bytes(8, "little") + body[8:] if length >= 8 else body


class Slab:
    """A registered buffer that requests take stretches of, and give back when they are over."""

    def __init__(
        self,
        end: End,
        nbytes: int,
        flags: int = LOCAL,
        *,
        private: bool = False,
        peers: str = "write",
    ) -> None:
        self.end = end
        self.flags = flags
        self.buffer = end.memory(nbytes, flags, private=private, peers=peers)
        self.registered = True
        self.leaving: Any = None  # a Deregister that was accepted
        self.frozen: bytearray | None = None  # what it held when that was over
        self._free = [(0, nbytes)]
        self._learn()

    def _learn(self) -> None:
        self.address = self.buffer.address
        self.token = self.buffer.local_token

    def take(self, length: int) -> int | None:
        """A free stretch; None when there is none. Never the one returned last, if possible."""
        for index, (start, room) in enumerate(self._free):
            if room >= length:
                self._free[index : index + 1] = (
                    [(start + length, room - length)] if room > length else []
                )
                return start
        return None

    def give(self, start: int, length: int) -> None:
        self._free.append((start, length))
        self._free.sort()
        merged: list[tuple[int, int]] = []
        for at, room in self._free:
            if merged and merged[-1][0] + merged[-1][1] == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + room)
            else:
                merged.append((at, room))
        self._free = merged

    def put(self, data: bytes, start: int) -> None:
        """What the program itself does with its memory."""
        self.buffer.put(data, start)
        if self.frozen is not None:
            self.frozen[start : start + len(data)] = data

    def drop(self) -> None:
        """The memory is used no more."""
        if isinstance(self.buffer, Buffer):
            self.buffer.view.release()
            self.buffer.memory = None

    def deregister(self) -> None:
        self.leaving = self.buffer.mr.deregister()
        self.registered = False
        self.frozen = None

    def register(self, flags: int) -> None:
        self.buffer.register(flags)
        self.flags = flags
        self.registered = True
        self.leaving = self.frozen = None
        self._learn()


@dataclass
class Piece:
    """A stretch of a slab, named by the token that the slab had then."""

    slab: Slab
    start: int
    length: int
    token: int

    def sge(self) -> Any:
        return self.slab.end.raw_sge(self.slab.address + self.start, self.length, self.token)

    def get(self) -> bytes:
        return self.slab.buffer.get(self.length, self.start)


@dataclass
class Pieces:
    """The memory of one request."""

    pieces: list[Piece]

    @classmethod
    def take(cls, slabs: list[Slab], lengths: list[int]) -> Pieces | None:
        """One piece of each length, from the slabs in turn; None when memory has run out."""
        taken = cls([])
        for index, length in enumerate(lengths):
            slab = slabs[index % len(slabs)]
            start = slab.take(length) if length else 0
            if start is None:
                taken.give_back()
                return None
            taken.pieces.append(Piece(slab, start, length, slab.token))
        return taken

    def give_back(self) -> None:
        for piece in self.pieces:
            if piece.length:
                piece.slab.give(piece.start, piece.length)

    def sges(self) -> list[Any]:
        return [piece.sge() for piece in self.pieces]

    def put(self, data: bytes) -> None:
        for piece in self.pieces:
            piece.slab.put(data[: piece.length], piece.start)
            data = data[piece.length :]

    def blank(self) -> None:
        for piece in self.pieces:
            piece.slab.put(bytes([FILL]) * piece.length, piece.start)

    def get(self) -> bytes:
        return b"".join(piece.get() for piece in self.pieces)

    def touch(self, slab: Slab) -> bool:
        return any(piece.slab is slab for piece in self.pieces)

    def registered(self, right: int = 0) -> bool:
        """Whether all of it is still the memory that its tokens name, with one of these rights."""
        return all(
            piece.slab.registered
            and piece.token == piece.slab.token
            and (not right or piece.slab.flags & right)
            for piece in self.pieces
        )


@dataclass(eq=False)
class Grant:
    """A token that lets a peer reach a stretch of a target."""

    token: int
    target: Target
    start: int
    length: int
    rights: str  # of "rw"
    only: Side | None = None
    """The one side that may use it; None: any peer."""
    state: str = "valid"
    """valid, unsure (its end has begun) or dead."""

    def refuses(self, user: Side, right: str, start: int, length: int) -> bool:
        inside = self.start <= start and start + length <= self.start + self.length
        mine = self.only in (None, user)
        return self.state == "dead" or right not in self.rights or not inside or not mine


@dataclass(eq=False)
class Window:
    """A memory window. `state`: free, bound, or lost (no longer known)."""

    real: Any
    state: str = "free"
    grant: Grant | None = None
    side: Side | None = None


@dataclass(eq=False)
class Target:
    """Memory of one side that its peer reads and writes; `shadow` is what it must hold."""

    slab: Slab
    shadow: bytearray = field(default_factory=bytearray)
    dirty: bool = False

    @classmethod
    def of(cls, end: End, nbytes: int, flags: int, *, private: bool) -> Target:
        target = cls(Slab(end, nbytes, flags, private=private))
        start = payload(nbytes + flags, nbytes)
        target.slab.buffer.put(start)
        target.shadow[:] = start
        return target

    def grant(self) -> Grant:
        """The token of the region itself."""
        flags = self.slab.flags
        rights = "r" * bool(flags & MrFlag.ALLOW_REMOTE_READ)
        rights += "w" * (flags & MrFlag.ALLOW_REMOTE_WRITE == MrFlag.ALLOW_REMOTE_WRITE)
        length = len(self.shadow)
        return Grant(self.slab.buffer.remote_token, self, 0, length, rights)

    def write(self, start: int, data: bytes) -> None:
        self.shadow[start : start + len(data)] = data
        self.dirty = True


TARGET_FLAGS: Final = (
    LOCAL | MrFlag.ALLOW_REMOTE_READ,
    LOCAL | REMOTE,
    LOCAL | REMOTE,
    LOCAL,
)
"""By the number of the side: programs with one connection can write, too."""
