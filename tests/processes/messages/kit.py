# SPDX-License-Identifier: Apache-2.0
"""Peers in other processes that the tests of messages share."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
import pytest

import shmnd

LIMIT = 20.0


SPAWN = multiprocessing.get_context("spawn")


Address = tuple[str, int]


def accepted_unreturned(server: shmnd.Server, pool: ThreadPoolExecutor) -> shmnd.Connection:
    """Return the client's end of a connection that the server has accepted and not returned."""
    connecting = pool.submit(shmnd.connect, server.address, timeout=LIMIT)
    while not server._arrivals:
        server._poll("Server.accept")
        server.adapter._engine.progress()
    while not connecting.done():
        server.adapter._engine.progress()
    return connecting.result()


LONG = 3_000_001


SIZES = [0, 1, 8, 40, 1016, 16_376, 16_377, 16_384, 100_000, 1 << 20, LONG]


def pattern(nbytes: int, start: int = 0) -> bytes:
    """Bytes of which no two stretches are alike."""
    return (
        (np.arange(start, start + nbytes, dtype=np.uint64) * 2654435761 >> 7).astype("u1").tobytes()
    )


# -- what the peers do --
def echo(address: Address, pipe: Pipe) -> None:
    with shmnd.connect(address) as connection:
        for message in connection:
            connection.send_bytes(message)


def sender(address: Address, pipe: Pipe) -> None:
    """Send the requested messages, and close at once."""
    with shmnd.connect(address) as connection:
        for nbytes in pipe.recv():
            connection.send_bytes(pattern(nbytes))


class Peer:
    """Another process, and the connection with it."""

    def __init__(self, role: Callable[[Address, Pipe], None], **options: Any) -> None:
        self.server = shmnd.listen(**options)
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=role, args=(self.server.address, theirs), daemon=True)
        self.process.start()
        theirs.close()
        try:
            self.connection = self.server.accept(LIMIT)
        except BaseException:
            self.end()
            raise

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(LIMIT)

    def end(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()
        self.server.close()
        self.pipe.close()
        self.process.join(LIMIT)
        self.process.kill()
        self.process.join()
        self.process.close()


MakePeer = Callable[..., Peer]


@pytest.fixture
def peer_of() -> Iterator[MakePeer]:
    made: list[Peer] = []

    def make(role: Callable[[Address, Pipe], None], **options: Any) -> Peer:
        made.append(Peer(role, **options))
        return made[-1]

    yield make
    while made:
        made.pop().end()


Pair = list[shmnd.Connection]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both ends in this process."""
    made: Pair = []
    with shmnd.listen() as server:
        thread = threading.Thread(target=lambda: made.append(shmnd.connect(server.address)))
        thread.start()
        accepted = server.accept(LIMIT)
        thread.join()
        made.insert(0, accepted)
        del accepted
    yield made
    while made:  # an object left in the list would keep its memory
        made.pop().close()
