# SPDX-License-Identifier: Apache-2.0
"""A message that the receiver has no memory for: the call says so, and nothing is lost."""

import asyncio
import contextlib
import resource
from collections.abc import Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

import shmnd
from processes.messages.kit import LIMIT, Address, MakePeer

LARGE = 100_000_000
"""More than malloc keeps of freed memory."""
ROOM = LARGE // 4


def message(nbytes: int) -> bytes:
    return bytes([nbytes % 251]) * nbytes


def sender(address: Address, pipe: Pipe) -> None:
    """Send messages of these lengths, and close at once."""
    with shmnd.connect(address) as connection:
        for nbytes in pipe.recv():
            connection.send_bytes(message(nbytes))


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Limit the address space: it has room for a part of a large message."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_message_without_memory_for_it_stays(peer_of: MakePeer) -> None:
    peer = peer_of(sender)
    near = peer.connection
    lengths = [40, LARGE, 40, 20_000]
    peer.pipe.send(lengths)
    asked = (
        lambda: near.recv_bytes(LIMIT),
        lambda: near.recv_into(bytearray(40), LIMIT),
        lambda: near.poll(LIMIT),
        lambda: asyncio.run(near.arecv_bytes(LIMIT)),
    )
    assert near.recv_bytes(LIMIT) == message(40)
    with little_memory():
        for ask in asked:
            with pytest.raises(MemoryError, match=f"for a message of {LARGE} bytes"):
                ask()
            assert near.connected
    for nbytes in lengths[1:]:
        assert near.recv_bytes(LIMIT) == message(nbytes)
    with pytest.raises(EOFError):
        near.recv_bytes(LIMIT)


def test_earlier_messages_are_received(peer_of: MakePeer) -> None:
    peer = peer_of(sender)
    near = peer.connection
    lengths = [8, 5000, 20_000, LARGE]
    peer.pipe.send(lengths)
    with little_memory():
        for nbytes in lengths[:-1]:
            assert near.recv_bytes(LIMIT) == message(nbytes)
        with pytest.raises(MemoryError, match="the next call may take it"):
            near.recv_bytes(LIMIT)
    assert near.recv_bytes(LIMIT) == message(LARGE)
