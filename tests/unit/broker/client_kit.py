# SPDX-License-Identifier: Apache-2.0
"""Brokers made of a socket, and clients, that the tests of clients share."""

import contextlib
import os
import select
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shmnd.broker.client import BrokerClient
from shmnd.broker.place import Place
from shmnd.broker.protocol import decode, encode, name_of, receive, send
from unit.broker.wire import PATIENCE

KEY = "ab" * 16


ADAPTER = name_of(KEY)


LISTENER = {"adapter": ADAPTER, "object": 1, "kind": "listener", "host": "127.0.0.1", "port": 5000}


Make = Callable[..., BrokerClient]


@pytest.fixture
def make(place: Place) -> Iterator[Make]:
    """Make clients of this place, and close them at the end."""
    made: list[BrokerClient] = []

    def make(**more: Any) -> BrokerClient:
        more = {"key": os.urandom(16).hex(), **more}
        base = str(place.directory.parent)
        client = BrokerClient("test", base=base, **more)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()
        client.close()


def readable(client: BrokerClient, seconds: float = 0.0) -> bool:
    return bool(select.select([client.fileno()], [], [], seconds)[0])


def listening(client: BrokerClient) -> None:
    client.call("adapter", key=KEY)
    client.call("bind", **LISTENER)
    client.call("listen", object=1, backlog=0)
    client.call("request", object=1, connector=1)


# --- another broker ---
class Owner:
    """Replays the state of a process to a new broker."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __call__(self, client: BrokerClient) -> None:
        self.told.append(client.broker)
        listening(client)


# --- odd brokers ---
class Puppet:
    """A broker that does what the test says."""

    def __init__(self, place: Place) -> None:
        lock = place.try_lock()
        assert lock is not None
        self.lock = lock
        self.place = place
        self.listener = place.listen()
        self.socks: list[socket.socket] = []

    def accept(self) -> None:
        assert select.select([self.listener], [], [], PATIENCE)[0], "no client comes"
        self.socks.append(self.listener.accept()[0])

    def read(self) -> dict[str, Any]:
        assert select.select([self.socks[-1]], [], [], PATIENCE)[0], "no message comes"
        return decode(receive(self.socks[-1]).data)

    def say(self, **message: Any) -> None:
        send(self.socks[-1], encode(message))

    def greet(self, **more: Any) -> dict[str, Any]:
        self.accept()
        hello = self.read()
        reply = {"re": hello["id"], "status": 0, "message": "", "broker": "puppet", **more}
        self.say(**reply)
        return hello

    def hang_up(self) -> None:
        self.socks.pop().close()

    def give_way(self) -> int:
        """Stop being a broker; return the lock, or a client starts another one."""
        self.place.socket.unlink()
        self.listener.close()
        for sock in self.socks:
            sock.close()
        lock, self.lock = self.lock, -1
        return lock

    def leave(self) -> None:
        if self.lock >= 0:
            os.close(self.give_way())


@contextlib.contextmanager
def puppet(place: Place) -> Iterator[Puppet]:
    made = Puppet(place)
    try:
        yield made
    finally:
        made.leave()


@contextlib.contextmanager
def greeted(place: Place, make: Make, **more: Any) -> Iterator[tuple[Puppet, BrokerClient]]:
    """Return a puppet and a client that it has greeted."""
    with puppet(place) as broker, ThreadPoolExecutor(1) as pool:
        making = pool.submit(make, **more)
        broker.greet()
        yield broker, making.result(PATIENCE)
