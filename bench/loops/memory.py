# SPDX-License-Identifier: Apache-2.0
"""Where the messages of a lane lie: registered memory, and the elements that name it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy

import shmnd

from ..measure.how import HEADER, Memory

if TYPE_CHECKING:
    from shmnd import Adapter, MemoryRegion, Sge, nd1

    Elements = Sge | tuple[Sge, Sge]

LIMIT = 20.0
"""Seconds for any step of the set-up."""

_RIGHTS = shmnd.MrFlag.ALLOW_REMOTE_READ | shmnd.MrFlag.ALLOW_REMOTE_WRITE
_LINE = 64
_PAGE = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Memory for one message."""

    region: MemoryRegion
    data: numpy.ndarray
    """Without the header that precedes mixed memory."""
    elements: Elements
    address: int
    header: MemoryRegion | None = None
    """Of mixed memory."""


def places(adapter: Adapter, size: int, memory: Memory, into: Memory) -> tuple[Place, Place]:
    """Return where messages are sent from, and where they are received."""
    span = span_of(size) if Memory.MIXED not in {memory, into} else -(-size // _PAGE) * _PAGE
    apart = into is not memory
    sent = allocate(adapter, span if apart else 2 * span, memory)
    region = register(adapter, sent)
    outbox = _place(adapter, region, sent[:size], 0, memory)
    if not apart:
        return outbox, _place(adapter, region, sent[span : span + size], span, into)
    received = allocate(adapter, span, into)
    inbox = _place(adapter, register(adapter, received), received[:size], 0, into)
    if memory is Memory.MIXED:
        inbox = dataclasses.replace(inbox, data=inbox.data[HEADER:])
    return outbox, inbox


def pieces(place: Place) -> int:
    """Return how many elements a message has there."""
    return 1 + (place.header is not None)


def _place(
    adapter: Adapter, region: MemoryRegion, memory: numpy.ndarray, begin: int, kind: Memory
) -> Place:
    address = region.address + begin
    if kind is not Memory.MIXED:
        return Place(region, memory, region.sge(begin, len(memory)), address)
    rest = len(memory) - HEADER
    header = register(adapter, numpy.zeros(HEADER, numpy.uint8))
    elements = header.sge(), region.sge(begin, rest)
    return Place(region, memory[:rest], elements, address, header)


def span_of(size: int) -> int:
    """Return the bytes that a message takes in memory, so that the next begins on a line."""
    return -(-max(size, 1) // _LINE) * _LINE


def register(adapter: Adapter, memory: numpy.ndarray) -> MemoryRegion:
    """Return a region of memory that peers may read and write."""
    region = adapter.create_memory_region()
    region.register(memory, _RIGHTS).result(LIMIT)
    return region


def allocate(adapter: Adapter | nd1.Adapter, nbytes: int, memory: Memory) -> numpy.ndarray:
    """Return memory of which every page is there before the clock runs."""
    if memory is Memory.PRIVATE:
        return numpy.full(nbytes, 0, numpy.uint8)
    shared = adapter.allocate(nbytes)
    shared[:] = 0
    return shared
