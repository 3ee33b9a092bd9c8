# SPDX-License-Identifier: Apache-2.0
"""A broker's state without sockets, and parties that talk to it directly."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

from shmnd.broker.protocol import VERSION, PassedFd, decode, encode, name_of
from shmnd.broker.service.records import Limits
from shmnd.broker.service.rendezvous import Rendezvous
from shmnd.status import Status

PID = 77


class Fake(PassedFd):
    """A descriptor that refers to nothing, of any kind and size."""

    __slots__ = ("_kind", "_process", "_size", "closed")

    def __init__(self, kind: str = "", size: int = 1 << 20, process: int = 0) -> None:
        super().__init__(-1)
        self._process = process
        self._kind = kind
        self._size = size

    def kind(self) -> str:
        return self._kind

    def process(self) -> int:
        return self._process

    def size(self) -> int:
        return self._size


class World:
    """A broker, its clients, and what it said to each of them."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.state = Rendezvous(
            limits=limits, first_port=50000, channel=self._channel, place="/tests"
        )
        self.channel_error: OSError | None = None
        self._channels = itertools.count()
        self.said: dict[int, list[tuple[dict[str, Any], tuple[PassedFd, ...]]]] = {}
        self.dropped: list[int] = []
        self._numbers = itertools.count(1)

    def _channel(self) -> tuple[PassedFd, PassedFd]:
        if self.channel_error is not None:
            raise self.channel_error
        number = next(self._channels)
        return Fake(f"{number}, to ring"), Fake(f"{number}, to listen")

    def deliver(self) -> None:
        items = self.state.outbox.items
        while items:
            client, message, fds, _ = items.popleft()
            if message is None:
                self.dropped.append(client)
            else:
                # Over the wire, so that a message without a wire form, or a long one, fails here.
                self.said.setdefault(client, []).append((decode(encode(message)), fds))

    def party(
        self,
        *,
        key: str | None = None,
        holds: bool = False,
        pid: int = PID,
        pidfd_of: int = PID,
        user: int = 0,
        adapter: bool = True,
    ) -> "Party":
        self.state.admit(number := next(self._numbers), pid, user)
        pidfd = Fake(process=pidfd_of)
        return Party(self, number, key or os.urandom(16).hex(), holds, pidfd, adapter)


class Party:
    """One process, as the broker sees it."""

    def __init__(
        self, world: World, number: int, key: str, holds: bool, pidfd: Fake, adapter: bool
    ) -> None:
        self.world = world
        self.number = number
        self.key = key
        self.uid = name_of(key)
        self.pidfd = pidfd
        self.doorbells: list[tuple[str, tuple[PassedFd, ...]]] = []
        """By which process, and the end to listen at."""
        self.adapter_key = os.urandom(16).hex()
        self.adapter = name_of(self.adapter_key)
        self._ids = itertools.count(1)
        self._objects = itertools.count(1)
        self.hello = self.raw("hello", [self.pidfd], version=VERSION, key=key, pid=PID, holds=holds)
        if adapter:
            self.ask("adapter", key=self.adapter_key, table={"of": self.uid})

    def raw(self, op: str, fds: Sequence[PassedFd] = (), **fields: Any) -> dict[str, Any]:
        """Return the reply, whatever it says."""
        ident = next(self._ids)
        message = decode(encode({"op": op, "id": ident, **fields}))
        self.world.state.handle(self.number, message, list(fds))
        self.world.deliver()
        box = self.world.said[self.number]
        found = [(m, i) for i, (m, _) in enumerate(box) if m.get("re") == ident]
        assert len(found) == 1, f"{len(found)} replies"
        del box[found[0][1]]
        return found[0][0]

    def ask(self, op: str, fds: Sequence[PassedFd] = (), **fields: Any) -> dict[str, Any]:
        """Return the reply to a request that must succeed."""
        reply = self.raw(op, fds, **fields)
        assert reply["status"] == Status.SUCCESS, reply
        return reply

    def refused(self, op: str, fds: Sequence[PassedFd] = (), **fields: Any) -> Status:
        """Return the status of a request that must fail, and must say why."""
        reply = self.raw(op, fds, **fields)
        assert reply["status"] != Status.SUCCESS, reply
        assert reply["message"]
        return Status(reply["status"])

    def take(self) -> list[tuple[dict[str, Any], tuple[PassedFd, ...]]]:
        """Return the events since the last look, with descriptors; doorbells are put aside."""
        self.world.deliver()
        taken = self.world.said.pop(self.number, [])
        self.doorbells += [(m["process"], fds) for m, fds in taken if m["ev"] == "doorbell"]
        return [(message, fds) for message, fds in taken if message["ev"] != "doorbell"]

    def events(self) -> list[dict[str, Any]]:
        """Return the events since the last look."""
        return [message for message, _ in self.take()]

    def names(self) -> list[str]:
        """Return the names of the events since the last look."""
        return [event["ev"] for event in self.events()]

    def leave(self) -> None:
        self.world.state.leave(self.number)
        self.world.deliver()

    # --- the usual ---

    def bind(self, kind: str, port: int = 0, host: str = "127.0.0.1", **more: Any) -> int:
        """Bind a new object and give its number."""
        number = next(self._objects)
        self.ask(
            "bind", adapter=self.adapter, object=number, kind=kind, host=host, port=port, **more
        )
        return number

    def listen(self, port: int, backlog: int = 0, host: str = "127.0.0.1") -> int:
        number = self.bind("listener", port, host)
        self.ask("listen", object=number, backlog=backlog)
        return number

    def arm(self, listener: int, connector: int = 1000) -> None:
        self.ask("request", object=listener, connector=connector)

    def connect_fields(self, port: int, host: str = "127.0.0.1", **more: Any) -> dict[str, Any]:
        number = next(self._objects)
        reply = self.ask(
            "bind", adapter=self.adapter, object=number, kind="connector", host=host, port=0
        )
        return {
            "adapter": self.adapter,
            "object": number,
            "local": [host, reply["port"]],
            "host": host,
            "port": port,
            **more,
        }

    def connect(self, port: int, **more: Any) -> int:
        """Connect from a new connector and give the number of the connection."""
        reply = self.ask("connect", **self.connect_fields(port, **more))
        assert isinstance(reply["connection"], int)
        return reply["connection"]

    def accept(self, connection: int, link: PassedFd | None = None, **more: Any) -> None:
        self.ask("accept", [link or Fake()], connection=connection, size=4096, **more)

    def segment(self, seg: int, fd: PassedFd | None = None, size: int = 4096) -> None:
        self.ask(
            "segment", [fd or Fake()], adapter=self.adapter, seg=seg, size=size, writable=False
        )


def connected(world: World, port: int = 5000) -> tuple["Party", "Party", int]:
    """Return an active and a passive party and their accepted connection, all events taken."""
    active, passive = world.party(), world.party()
    passive.arm(passive.listen(port))
    connection = active.connect(port)
    passive.accept(connection)
    active.take()
    passive.take()
    return active, passive, connection
