# SPDX-License-Identifier: Apache-2.0
"""Connections and servers in `select`: each tells by its descriptor that there is something."""

import multiprocessing.connection
import os
import select
import selectors
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

import shmnd
from processes.messages.kit import LIMIT, SPAWN, Address, MakePeer, echo

CLIENTS = 4
ROUNDS = 50


def readable(what: shmnd.Connection, seconds: float) -> bool:
    return bool(select.select([what], [], [], seconds)[0])


def until_polled(connection: shmnd.Connection, limit: float = LIMIT) -> float:
    """Sleep in `select` until a poll finds something; return the longest of these sleeps."""
    longest, end = 0.0, time.monotonic() + limit
    while True:
        before = time.monotonic()
        assert readable(connection, end - before), "nothing wakes it"
        longest = max(longest, time.monotonic() - before)
        if connection.poll():
            return longest


def asleep(connection: shmnd.Connection) -> None:
    """Poll until the descriptor is not readable: nothing is there."""
    end = time.monotonic() + LIMIT
    while readable(connection, 0.05):
        assert not connection.poll()
        assert time.monotonic() < end, "it is readable, and nothing is there"


def questioner(address: Address, pipe: Pipe) -> None:
    with shmnd.connect(address) as connection:
        for number in range(ROUNDS):
            connection.send_bytes(b"%d" % number)
            assert connection.recv_bytes(LIMIT) == b"<%d>" % number
        pipe.send("done")


def sends_on_request(address: Address, pipe: Pipe) -> None:
    """Send so many messages as are asked for, and sleep in between."""
    with shmnd.connect(address) as connection:
        while (count := pipe.recv()) is not None:
            for number in range(count):
                connection.send_bytes(b"%d" % number)


def closes(address: Address, pipe: Pipe) -> None:
    with shmnd.connect(address):
        pipe.recv()


def dies(address: Address, pipe: Pipe) -> None:
    with shmnd.connect(address):
        pipe.recv()
        os.abort()


def step(server: shmnd.Server) -> shmnd.Connection | None:
    try:
        return server.accept(0)
    except TimeoutError:
        return None


def test_one_thread_serves_clients_that_come_and_go() -> None:
    """A selector has the server and all connections, and nothing polls between its events."""
    with shmnd.listen() as server, selectors.DefaultSelector() as selector:
        pipes = [SPAWN.Pipe() for _ in range(CLIENTS)]
        clients = [
            SPAWN.Process(target=questioner, args=(server.address, theirs), daemon=True)
            for _, theirs in pipes
        ]
        for client in clients:
            client.start()
        selector.register(server, selectors.EVENT_READ)
        answered = left = 0
        try:
            while left < CLIENTS:
                events = selector.select(LIMIT)
                assert events, f"{answered} were answered, and nothing wakes the selector"
                for key, _ in events:
                    if key.fileobj is server:
                        if (made := step(server)) is not None:
                            selector.register(made, selectors.EVENT_READ)
                        continue
                    connection = key.fileobj
                    assert isinstance(connection, shmnd.Connection)
                    try:
                        while connection.poll():
                            connection.send_bytes(b"<%b>" % connection.recv_bytes())
                            answered += 1
                    except EOFError:
                        selector.unregister(connection)
                        connection.close()
                        left += 1
            assert answered == CLIENTS * ROUNDS
            assert [ours.recv() for ours, _ in pipes] == ["done"] * CLIENTS
        finally:
            for client in clients:
                client.join(LIMIT)
                client.kill()
                client.join()


def test_a_connection_is_readable_as_long_as_messages_are_left(peer_of: MakePeer) -> None:
    peer = peer_of(sends_on_request)
    connection = peer.connection
    asleep(connection)
    for count in (1, 3, 70):  # more than one poll takes
        peer.pipe.send(count)
        for number in range(count):
            until_polled(connection)
            assert connection.recv_bytes(0) == b"%d" % number
        asleep(connection)
    peer.pipe.send(None)


def test_a_message_that_came_during_a_send_is_signalled(peer_of: MakePeer) -> None:
    """The Send takes it in, and no event is left of it."""
    connection = peer_of(echo).connection
    asleep(connection)
    for number in range(200):
        connection.send_bytes(b"%d" % number)
    for number in range(200):
        until_polled(connection)
        assert connection.recv_bytes(0) == b"%d" % number
    asleep(connection)


@pytest.mark.parametrize(("role", "error"), [(closes, EOFError), (dies, ConnectionResetError)])
def test_the_end_of_the_peer_is_signalled(
    peer_of: MakePeer, role: Callable[[Address, Pipe], None], error: type[Exception]
) -> None:
    peer = peer_of(role)
    asleep(peer.connection)
    peer.pipe.send("now")
    until_polled(peer.connection)
    with pytest.raises(error):
        peer.connection.recv_bytes(0)
    assert readable(peer.connection, 0), "the end stays"


def test_the_wait_of_multiprocessing_takes_it(peer_of: MakePeer) -> None:
    peer = peer_of(sends_on_request)
    connection = peer.connection
    peer.pipe.send(1)
    end = time.monotonic() + LIMIT
    while not connection.poll():
        found = multiprocessing.connection.wait([connection, peer.pipe], LIMIT)
        assert found == [connection]
        assert time.monotonic() < end
    assert connection.recv_bytes(0) == b"0"
    peer.pipe.send(None)


def test_a_program_that_has_closed_has_no_descriptor(peer_of: MakePeer) -> None:
    peer = peer_of(closes)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert peer.connection.fileno() == peer.connection.fileno()
    peer.connection.close()
    with pytest.raises(OSError, match=r"^Connection\.fileno: the connection is closed"):
        peer.connection.fileno()
    peer.server.fileno()
    peer.server.close()
    with pytest.raises(OSError, match=r"^Server\.fileno: the server is closed"):
        peer.server.fileno()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    peer.pipe.send("now")
