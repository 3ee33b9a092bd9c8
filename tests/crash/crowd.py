# SPDX-License-Identifier: Apache-2.0
"""Processes with many lines that come and go, and the lives that they lead."""

from __future__ import annotations

import contextlib
import gc
import re
import struct
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

from crash.links import LARGEST, Kit, Line, Report
from crash.versions import RECEIVES, WAIT, Address, Memory, One, Two
from shmnd import NdError

HONEST: Final = 2
"""Lines between the two that survive."""
MADE: Final = "made"
CONNECTED: Final = "connected"
PORT: Final = struct.Struct("<H")


class Member:
    """A process of the crowd: one adapter, one queue, its lines."""

    def __init__(self, version: int, seed: int, kits: int, *, trusting: bool = True) -> None:
        self.trusting, self.silent = trusting, False
        self.version_api: Two | One = Two() if version == 2 else One()
        self.chance = Random(seed)
        self.kits = [Kit(self.version_api, private=n % 4 == 3) for n in range(kits)]
        self.lines: list[Line] = []
        self.reports: list[Report] = []
        self.shared: Memory | None = None
        self.asked: tuple[Line, Any] | None = None
        if isinstance(self.version_api, Two):
            self.shared = Memory(self.version_api, 4 * RECEIVES * LARGEST, private=False)
            for slot in range(4 * RECEIVES):
                self._share(slot)

    def _share(self, slot: int) -> None:
        assert isinstance(self.version_api, Two)
        assert self.shared is not None
        self.version_api.post_shared(("shared", slot), self.shared, slot * LARGEST, LARGEST)

    def kit(self) -> Kit:
        return self.kits.pop(self.chance.randrange(len(self.kits)))

    def connect(self, to: Address, name: str, *, answer: bool = False) -> Line:
        """Ask for a line; with `answer`, tell the other one where to connect to."""
        line = Line(self, name, shared=self.chance.random() < 0.3)
        self.lines.append(line)
        try:
            line.connect(to, PORT.pack(self.version_api.address[1] if answer else 0))
        except NdError:
            line.end()
        return line

    def listen(self) -> None:
        """Accept the clients that come, and connect to servers."""
        if self.asked is None:
            line = Line(self, "accepted", shared=self.chance.random() < 0.3)
            self.asked = (line, self.version_api.request(line.port))
        line, request = self.asked
        if not request.done():
            return
        self.asked = None
        self.lines.append(line)
        try:
            request.result()
            (port,) = PORT.unpack_from(line.port.private_data())
            line.accept()
        except NdError:
            line.end()
            return
        if port:
            self.connect((self.version_api.address[0], port), "answering")

    def turn(self, timeout: float) -> None:
        """Take the requests that ended, and let every line do something."""
        for ended in self.version_api.ended(timeout):
            ended.line.take_in(ended)
            if ended.what[0] == "shared":
                self._share(ended.what[1])
        for line in list(self.lines):
            line.step()
            if line.is_over():
                self.lines.remove(line)
                self.reports.append(line.close())

    def until(self, done: Any) -> None:
        deadline = time.monotonic() + WAIT
        while not done():
            self.turn(0.002)
            assert time.monotonic() < deadline


# -- the lives of processes -----------------------------------------------------------------------


def live_and_die(
    version: int, seed: int, addresses: list[Address], tell: Callable[[str], object]
) -> None:
    """Be one that has no end of its own: lines come, talk and go, as long as it is let."""
    member = Member(version, seed, kits=6)
    chance = member.chance
    tell(MADE)
    told = False
    while True:
        if len(member.kits) > 2 and (len(member.lines) < 2 or chance.random() < 0.01):
            to = addresses[len(member.lines) % len(addresses)]
            member.connect(to, "victim", answer=chance.random() < 0.4)
        if len(member.kits) > 1:
            member.listen()
        member.turn(0.002)
        connected = [line for line in member.lines if line.connected and not line.leaving]
        if connected and not told:
            told = True
            tell(CONNECTED)
        if len(connected) > 1 and chance.random() < 0.01:
            chance.choice(connected).leave()


def held(pid: str = "self") -> Counter[str]:
    """What a process has taken from the system, by kind.

    Tables of tokens are left out: a token rests for thousands of others before its entry is used
    again, so there are more of them the longer an adapter lives, until there are enough.
    """
    gc.collect()
    proc = Path("/proc") / pid
    mapped = (line.split()[-1] for line in (proc / "maps").read_text().splitlines())
    kinds = Counter(f"mapping {name}" for name in mapped if "shmnd" in name)
    for entry in (proc / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
            kinds["descriptor " + re.sub(r"\d+", "", str(entry.readlink()))] += 1
    return Counter({kind: n for kind, n in kinds.items() if "shmnd-table" not in kind})


def survive(version: int, seed: int, trusting: bool, pipe: Connection) -> None:
    """Serve every peer, talk with the other survivor, and report the end of each line."""
    member = Member(version, seed, kits=20, trusting=trusting)
    pipe.send(member.version_api.address)
    for other in pipe.recv():
        member.connect(other, "honest")
    member.until(lambda: member.listen() or len(member.lines) == HONEST)
    for line in member.lines:
        line.honest, line.name = True, "honest"
    member.until(lambda: all(line.connected for line in member.lines))
    pipe.send("ready")
    gc.freeze()  # so that counting the held objects need not visit all of them
    while True:
        member.listen()
        member.turn(0.002)
        if pipe.poll() and not _answer(member, pipe):
            return


def _answer(member: Member, pipe: Connection) -> bool:
    question = pipe.recv()
    if question == "what became of them":
        member.until(lambda: all(line.honest for line in member.lines))
        pipe.send(member.reports)
        member.reports = []
    elif question == "what do you hold":
        assert member.shared is None or member.shared.is_intact()
        pipe.send((held(), sum(line.got for line in member.lines if line.honest)))
    return bool(question != "enough")
