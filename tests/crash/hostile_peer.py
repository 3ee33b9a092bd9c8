# SPDX-License-Identifier: Apache-2.0
"""A process that talks like any other and, in between, writes any value into all that it shares.

It knows each word of the shared memory by its name, from the header that lays it out. It writes
what it can write: the links, the marks of its peers and its own, its own bells and grants. And it
does to the doorbells that it shares with its peers what can be done to them. It does not write into
memory of its peers that it maps to reach their data, so that these can look whether they have
written into it themselves; and while it lies it asks its own library for nothing, which would
believe the lies about where a message goes.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import struct
import subprocess
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np

import shmnd.runtime.progress
from crash.crowd import Member
from crash.versions import Address

RING: Final = Path(__file__).parents[2] / "shmnd" / "ring"
SLOT: Final = 64
STRUCTS: Final = (
    "shmnd_link_header", "shmnd_side", "shmnd_slot", "shmnd_posted", "shmnd_shared_extent",
    "shmnd_listed", "shmnd_share", "shmnd_bell", "shmnd_marks", "shmnd_grant",
)  # fmt: skip
ANY: Final = "any word"
MESSAGE: Final = "a message"
DOORBELL: Final = "a doorbell"
SECONDS: Final = 8
"""A life that its own lies have hung up ends then."""
_FIELD: Final = re.compile(
    r"^\s+(?:shmnd_word\d+|uint\d+_t|struct shmnd_(?:share|link_shape)) (\w+)(?:\[[^;]*)?;"
)


class Word(NamedTuple):
    """A field of a shared struct."""

    name: str
    offset: int
    nbytes: int


Layout = dict[str, tuple[int, list[Word]]]
"""By struct: its size and its words."""


def layout(folder: Path) -> Layout:
    """Ask the compiler where every field of every shared struct lies."""
    text, fields = (RING / "wire" / "layout.h").read_text(), []
    for name in STRUCTS:
        body = re.search(rf"^struct {name} \{{\n(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
        assert body is not None, name
        for line in body[1].splitlines():
            if (found := _FIELD.match(line)) and not found[1].startswith(("pad", "reserved")):
                fields.append((name, found[1]))
    lines = [
        f'printf("{s} %zu {f} %zu %zu\\n", sizeof(struct {s}), offsetof(struct {s}, {f}),'
        f" sizeof(((struct {s} *)0)->{f}));"
        for s, f in fields
    ]
    source, program = folder / "layout.c", folder / "layout"
    head = '#include <stddef.h>\n#include <stdio.h>\n#include "wire/layout.h"\nint main(void) {\n'
    source.write_text(head + "\n".join(lines) + "\nreturn 0; }\n")
    subprocess.run(
        ["gcc", "-std=gnu11", f"-I{RING}", str(source), "-o", str(program)], check=True, timeout=60
    )
    known: Layout = {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )[:-1]:
        struct_name, size, field, offset, nbytes = line.split()
        words = known.setdefault(struct_name, (int(size), []))[1]
        words.append(Word(f"{struct_name}.{field}", int(offset), int(nbytes)))
    return known


def names(known: Layout) -> list[str]:
    """All that can be lied about."""
    return [ANY, MESSAGE, DOORBELL, *(word.name for _, words in known.values() for word in words)]


class Places(NamedTuple):
    """Where the rings of a link begin and how many slots they have, and its arrays of entries."""

    rings: list[tuple[int, int]]
    posted: list[tuple[int, int, int]]
    listed: list[tuple[int, int, int]]


class Shared(NamedTuple):
    """A stretch of shared memory that this process may write."""

    kind: str
    bytes: Any


def shared_memory() -> list[Shared]:
    """All of it but what holds data."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, *_rest = line.split()
        kind = re.search(r"memfd:shmnd-(link|bell|marks|table)", line)
        if kind is None or "w" not in rights:
            continue
        begin, end = (int(each, 16) for each in place.split("-"))
        memory = (ctypes.c_uint8 * (end - begin)).from_address(begin)
        found.append(Shared(kind[1], np.frombuffer(memory, np.uint8)))
    return found


def doorbells() -> list[int]:
    """What this process rings others by, and where it is rung."""
    found = []
    for engine in list(shmnd.runtime.progress._all_engines):
        found += [process.doorbell.fileno() for process in engine._peers._processes.values()]
        found += engine._wait_set._doorbells
    return found


class HostilePeer:
    """Writes values, at random and by name, and counts them by name."""

    def __init__(self, known: Layout, chance: Random, told: Any) -> None:
        self.known, self.chance, self.told = known, chance, told
        self.numbers = {name: number for number, name in enumerate(names(known))}

    def lie(self, pages: list[Shared]) -> None:
        """One value, somewhere in these, or what else can be done to a peer."""
        if self.chance.random() < 0.02:
            self._about_a_doorbell()
            return
        links = [each for each in pages if each.kind == "link"]
        pages = links if links and self.chance.random() < 0.8 else pages
        if not pages:
            return
        kind, memory = self.chance.choice(pages)
        if self.chance.random() < 0.25:
            self._poke(memory, ANY, self.chance.randrange(len(memory) // 8) * 8, 8)
        elif kind == "link":
            self._about_a_link(memory)
        else:
            name = {"bell": "shmnd_bell", "marks": "shmnd_marks", "table": "shmnd_grant"}[kind]
            size = self.known[name][0]
            self._about(memory, name, self.chance.randrange(4) * size)

    def _about_a_doorbell(self) -> None:
        """Drain, fill, shut or close one, or let it block."""
        ends = doorbells()
        if not ends:
            return
        fd = self.chance.choice(ends)
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        act = self.chance.randrange(6)
        try:
            if act == 0:
                end.recv(1 << 20, flags)
            elif act == 1:
                end.send(bytes(1 << self.chance.randrange(20)), flags)
            elif act == 2:
                end.shutdown(self.chance.choice((socket.SHUT_RD, socket.SHUT_WR)))
            elif act == 3:
                end.setblocking(self.chance.random() < 0.5)
            else:
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, fd)  # closed, and nothing else gets its number
                os.close(null)
        except OSError:
            pass  # done already, or full, or empty
        finally:
            end.detach()
        self._count(DOORBELL)

    def _about_a_link(self, memory: Any) -> None:
        header, side = (self.known[name][0] for name in ("shmnd_link_header", "shmnd_side"))
        sides = [header, header + side + 128]
        places = self._places(memory, header + 2 * (side + 128))
        kind = self.chance.randrange(23)
        if kind == 0:
            self._about(memory, "shmnd_link_header", 0)
        elif kind < 9:
            self._about(memory, "shmnd_side", self.chance.choice(sides))
        elif kind < 11:
            share = self.chance.choice(sides) + 512 + 16 * self.chance.randrange(8)
            self._about(memory, "shmnd_share", share)
        elif places is None:
            self._poke(memory, ANY, self.chance.randrange(len(memory) // 8) * 8, 8)
        elif kind < 14:
            ring, slots = self.chance.choice(places.rings)
            self._about(memory, "shmnd_slot", ring + SLOT * self.chance.randrange(slots))
        elif kind < 17:
            self._forge(memory, *self.chance.choice(places.rings))
        elif kind < 20:
            self._about_an_entry(memory, "shmnd_posted", *self.chance.choice(places.posted))
        else:
            self._about_an_entry(memory, "shmnd_listed", *self.chance.choice(places.listed))

    def _places(self, memory: Any, at: int) -> Places | None:
        """Where the arrays of a link lie, if its header still says so."""
        receives, extents, requests, elements, slots = zip(
            *[
                iter(
                    struct.unpack_from("<10I", memory, self.known["shmnd_link_header"][1][2].offset)
                )
            ]
            * 2,
            strict=True,
        )
        if not all(16 <= number <= 4096 and number & (number - 1) == 0 for number in slots):
            return None
        places = Places([], [], [])
        for number in slots:
            places.rings.append((at, number))
            at += number * SLOT
        for side in range(2):
            for name, entries, each, into in (
                ("shmnd_posted", receives[side], extents[side], places.posted),
                ("shmnd_listed", requests[side], elements[side], places.listed),
            ):
                entries = 1 << (max(entries, 1) - 1).bit_length()
                size = self.known[name][0] + each * self.known["shmnd_shared_extent"][0]
                into.append((at, size, entries))
                at += entries * size + 127 & ~127
        return places if at <= len(memory) else None

    def _about_an_entry(self, memory: Any, name: str, at: int, size: int, entries: int) -> None:
        entry = at + size * self.chance.randrange(min(entries, 16))
        if self.chance.random() < 0.5:
            self._about(memory, name, entry)
        else:
            self._about(memory, "shmnd_shared_extent", entry + self.known[name][0])

    def _forge(self, memory: Any, ring: int, slots: int) -> None:
        """The next message, made up altogether."""
        newest = 0
        for number in range(slots):
            (ready,) = struct.unpack_from("<Q", memory, ring + SLOT * number)
            newest = max(newest, ready & ((1 << 48) - 1))
        position = newest + self.chance.randrange(3)
        at = ring + SLOT * (position % slots)
        pick, bits = self.chance.choice, self.chance.getrandbits
        length = pick((0, 8, 48, 4000, 70_000, 1 << 31, bits(32)))
        payload = [pick((0, 1, length, bits(32))) for _ in range(12)]
        head = (length, self.chance.randrange(7), pick((0, 2, 4, 8, 10, bits(8))), 0)
        struct.pack_into("<IBBH12I", memory, at + 8, *head, *payload)
        struct.pack_into("<Q", memory, at, position + 1)
        self._count(MESSAGE)

    def _about(self, memory: Any, name: str, base: int) -> None:
        word = self.chance.choice(self.known[name][1])
        nbytes = min(word.nbytes, 8)
        offset = word.offset + self.chance.randrange(max(1, word.nbytes // 8)) * 8
        if base + offset + nbytes <= len(memory):
            self._poke(memory, word.name, base + offset, nbytes)

    def _poke(self, memory: Any, name: str, at: int, nbytes: int) -> None:
        now = int.from_bytes(bytes(memory[at : at + nbytes]), "little")
        value = self.chance.choice(
            (0, ~0, now + 1, now - 1, now + self.chance.randrange(256), self.chance.getrandbits(8),
             now ^ 1 << self.chance.randrange(8 * nbytes), self.chance.getrandbits(8 * nbytes))
        )  # fmt: skip
        packed = (value & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")
        memory[at : at + nbytes] = np.frombuffer(packed, np.uint8)
        self._count(name)

    def _count(self, name: str) -> None:
        self.told[self.numbers[name]] += 1


def have_sent(member: Member, messages: int) -> bool:
    """All lines that have not ended have sent so many."""
    return all(line.ended or line.sent > messages for line in member.lines)


def live_and_lie(
    version: int, seed: int, addresses: list[Address], known: Layout, lies: int, told: Any
) -> None:
    """Have a line with each, talk, and lie so often in between; count them in `told`."""
    signal.alarm(SECONDS)
    member = Member(version, seed, kits=4, trusting=False)
    chance, hostile_peer = member.chance, HostilePeer(known, member.chance, told)
    wanted = told.sum() + lies
    while told.sum() < wanted:
        member.silent = False
        while len(member.lines) < 2 and len(member.kits) > 1:
            member.connect(addresses[len(member.lines)], "hostile peer")
        member.until(partial(have_sent, member, chance.randrange(1, 40)))
        member.silent = True
        member.until(lambda: all(line.is_at_rest() for line in member.lines))
        while told.sum() < wanted and any(not line.ended for line in member.lines):
            member.turn(0.0005)
            pages = shared_memory()  # a line that ends takes its memory along
            for _ in range(chance.randrange(12)):
                hostile_peer.lie(pages)
