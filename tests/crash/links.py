# SPDX-License-Identifier: Apache-2.0
"""One connection of a process that does everything at once: messages of all sizes, windows that the
peer writes through, reads back and ends. Everything that arrives is checked.

A line ends when its peer ends, and is over when nothing of it is outstanding.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from crash.versions import RECEIVES, Address, Ended, Memory, Port, Two, Version
from shmnd import NdError, Status

if TYPE_CHECKING:
    from crash.crowd import Member

LARGEST: Final = 150_000
SENDS: Final = 3
BOARD: Final = 20_000
HEAD: Final = struct.Struct("<IIQ")  # number; token and address of a window, or 0
EDGES: Final = (0, 1, 48, 49, 900, 1023, 1024, 3576, 3577, 65_535, 65_536, LARGEST)
PATTERN: Final = (np.arange(LARGEST + 256) * 31 % 251).astype(np.uint8)


def write(buffer: Any, number: int, size: int, token: int = 0, address: int = 0) -> None:
    """Make message `number`."""
    buffer[:size] = PATTERN[number % 251 :][:size]
    if size >= HEAD.size:
        buffer[: HEAD.size] = np.frombuffer(HEAD.pack(number, token, address), np.uint8)


def look(buffer: Any, number: int, size: int) -> tuple[int, int]:
    """Is it message `number`, whole? What it tells of a window: token and address."""
    if size < HEAD.size:
        assert (buffer[:size] == PATTERN[number % 251 :][:size]).all(), (number, size)
        return 0, 0
    said, token, address = HEAD.unpack(bytes(buffer[: HEAD.size]))
    assert said == number, (said, number, size)
    rest = PATTERN[number % 251 :][HEAD.size : size]
    assert (buffer[HEAD.size : size] == rest).all(), (number, size)
    return token, address


@dataclass
class Report:
    """What one line came to."""

    name: str
    connected: bool
    sent: int
    got: int
    failed: int
    """Requests that ended other than well."""
    outstanding: int
    """Those outstanding when the end was first seen."""
    over: float
    """When the last of them had ended, by the monotonic clock."""
    statuses: set[str] = field(default_factory=set)


class Kit:
    """The memory of one line; used again by the next."""

    def __init__(self, version_api: Version, *, private: bool) -> None:
        self.private = private
        self.slots = Memory(version_api, (RECEIVES + SENDS) * LARGEST, private=private)
        self.board = Memory(version_api, 3 * BOARD, private=False)  # window; source; sink

    def is_intact(self) -> bool:
        return self.slots.is_intact() and self.board.is_intact()

    def slot(self, number: int) -> Any:
        return self.slots.array[number * LARGEST :][:LARGEST]


class Line:
    """One connection, from being asked for until it is over."""

    def __init__(self, member: Member, name: str, *, shared: bool = False) -> None:
        self.member, self.name = member, name
        self.honest = name == "honest"
        self.shared = shared and isinstance(member.version_api, Two)
        self.port: Port = member.version_api.port(self, shared=self.shared)
        self.kit: Kit | None = None
        self.steps: list[tuple[Any, Any]] = []  # operations under way, and what follows
        self.connected = self.ended = self.leaving = False
        self.outstanding = self.at_end = self.failed = self.sent = self.got = 0
        self.statuses: set[str] = set()
        self.free = list(range(RECEIVES, RECEIVES + SENDS))
        self.mine = self.own = "none"  # our window that the peer ends, and the one that we end
        self.token = 0
        self.theirs: tuple[int, int] | None = None
        self.uses = self.moving = 0
        self.over = 0.0

    # -- coming about --

    def prepare(self) -> None:
        self.port.make()
        self.kit = self.member.kit()
        if not self.shared:
            for slot in range(RECEIVES):
                self.take(slot)

    def follow(self, operation: Any, then: Any) -> None:
        self.steps.append((operation, then))

    def connect(self, to: Address, data: bytes) -> None:
        self.prepare()
        self.follow(self.port.connect(to, data), self._answered)

    def accept(self) -> None:
        self.prepare()
        self.follow(self.port.accept(), self._opened)

    def _answered(self) -> None:
        self.follow(self.port.complete(), self._opened)

    def _opened(self) -> None:
        self.connected = True
        self.follow(self.port.hear_the_end(), self.end)

    def step(self) -> None:
        """Take the steps that can be taken."""
        for pair in list(self.steps):
            operation, then = pair
            if not operation.done():
                continue
            self.steps.remove(pair)
            try:
                operation.result()
                then()
            except NdError:
                self.end()
        if self.connected and not (self.ended or self.leaving or self.member.silent):
            self.act()

    # -- its end --

    def leave(self) -> None:
        """Disconnect."""
        self.leaving = True
        try:
            self.follow(self.port.disconnect(), self.end)
        except NdError:
            self.end()

    def end(self) -> None:
        if self.ended:
            return
        assert not self.honest, self.statuses
        self.ended, self.at_end = True, self.outstanding
        self.over = time.monotonic()
        if not self.connected and self.kit is not None:
            self.port.flush()

    def is_at_rest(self) -> bool:
        """Nothing that it asked for moves data."""
        return self.ended or (len(self.free) == SENDS and not self.moving)

    def is_over(self) -> bool:
        return self.ended and not self.outstanding

    def is_trusted(self) -> bool:
        """Return whether arrived data must equal the sent data."""
        return self.honest or self.member.trusting

    def close(self) -> Report:
        self.port.close()
        if self.kit is not None:
            assert self.kit.is_intact()
            self.member.kits.append(self.kit)
        return Report(
            self.name, self.connected, self.sent, self.got, self.failed, self.at_end, self.over,
            self.statuses,
        )  # fmt: skip

    # -- what it does --

    def ask(self, call: Any, *arguments: Any) -> bool:
        """Make a request; a line that has ended takes none."""
        try:
            call(*arguments)
        except NdError:
            self.end()
            return False
        self.outstanding += 1
        return True

    def take(self, slot: int) -> None:
        if not self.ended:
            assert self.kit is not None
            self.ask(self.port.receive, ("in", slot), self.kit.slots, slot * LARGEST, LARGEST)

    def act(self) -> None:
        """Do one thing, by chance."""
        chance = self.member.chance
        kind = chance.randrange(10)
        assert self.kit is not None
        if self.theirs and not self.moving and kind < 5:
            self._use()
        elif self.mine == "none" and kind < 7:
            told = ("gone", "mine")
            self.mine = "binding"
            self.ask(self._bind, "mine", told)
        elif self.own == "none" and kind == 7:
            self.own = "binding"
            self.ask(self._bind, "own", None)
        elif self.free:
            self._send()

    def _bind(self, name: str, told: tuple[str, str] | None) -> None:
        assert self.kit is not None
        token = self.port.bind(("bound", name), self.kit.board, BOARD, told)
        if name == "mine":
            self.token = token

    def _send(self, ends: int = 0) -> None:
        assert self.kit is not None
        chance, slot = self.member.chance, self.free.pop()
        size = chance.choice(EDGES) if chance.random() < 0.5 else chance.randrange(5000)
        told = self.mine == "bound" and size >= HEAD.size and not ends
        here = (self.token, self.kit.board.address) if told else (0, 0)
        write(self.kit.slot(slot), self.sent, size, *here)
        offset = slot * LARGEST
        if self.ask(self.port.send, ("out", slot), self.kit.slots, offset, size, ends):
            self.sent += 1
            if told:
                self.mine = "told"

    def _use(self) -> None:
        """Write through the peer's window, or end it with a message."""
        assert self.kit is not None
        assert self.theirs is not None
        chance = self.member.chance
        if self.uses:
            self.moving = 1 + chance.randrange(BOARD)
            salt = chance.randrange(251)
            self.kit.board.array[BOARD:][: self.moving] = PATTERN[salt:][: self.moving]
            self._move("write", BOARD)
        elif self.free:
            token, self.theirs = self.theirs[1], None
            self._send(token)

    def _move(self, what: str, offset: int) -> None:
        assert self.kit is not None
        self.ask(self.port.move, (what,), self.kit.board, offset, self.moving, self.theirs)

    # -- outcomes --

    def take_in(self, ended: Ended) -> None:
        """One request is over."""
        what, status = ended.what, ended.status
        if what[0] not in {"gone", "shared"}:
            self.outstanding -= 1
            assert self.outstanding >= 0
        if status != Status.SUCCESS:
            self.failed += 1
            self.statuses.add(status.name)
            self.end()
        if self.ended:
            self.over = time.monotonic()
        if status == Status.SUCCESS:
            getattr(self, f"_over_{what[0]}")(what, ended.nbytes)

    def _over_in(self, what: tuple[Any, ...], nbytes: int) -> None:
        assert self.kit is not None
        self.received(self.kit.slot(what[1]), nbytes)
        self.take(what[1])

    def _over_shared(self, what: tuple[Any, ...], nbytes: int) -> None:
        assert self.member.shared is not None
        self.received(self.member.shared.array[what[1] * LARGEST :][:LARGEST], nbytes)

    def received(self, buffer: Any, nbytes: int) -> None:
        try:
            token, address = look(buffer, self.got, nbytes)
        except AssertionError:
            if self.is_trusted():
                raise
            token, address = 0, 0
        self.got += 1
        if token:
            assert self.theirs is None or not self.is_trusted()
            self.theirs, self.uses = (address, token), self.member.chance.randrange(4)

    def _over_out(self, what: tuple[Any, ...], nbytes: int) -> None:
        self.free.append(what[1])

    def _over_write(self, what: tuple[Any, ...], nbytes: int) -> None:
        if not self.ended:
            self._move("read", 2 * BOARD)

    def _over_read(self, what: tuple[Any, ...], nbytes: int) -> None:
        assert self.kit is not None
        board, moved = self.kit.board.array, self.moving
        if self.is_trusted():
            assert (board[2 * BOARD :][:moved] == board[BOARD:][:moved]).all()
        self.uses, self.moving = self.uses - 1, 0

    def _over_bound(self, what: tuple[Any, ...], nbytes: int) -> None:
        if what[1] == "mine":
            self.mine = "bound"
        elif not self.ended:
            self.ask(self.port.invalidate, ("done", "own"))

    def _over_done(self, what: tuple[Any, ...], nbytes: int) -> None:
        self.own = "none"

    def _over_gone(self, what: tuple[Any, ...], nbytes: int) -> None:
        self.mine = "none"
