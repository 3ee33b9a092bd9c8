# SPDX-License-Identifier: Apache-2.0
"""Brokers with real sockets, and clients that may send anything."""

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shmnd.broker.place import Place
from shmnd.broker.protocol import VERSION, PassedFd, decode, encode, name_of, receive, send, split
from shmnd.broker.service.records import Limits
from shmnd.broker.service.server import Server, ServerLimits

PATIENCE = 30.0
"""Seconds after which something that must happen counts as missing."""


@contextlib.contextmanager
def serving(
    place: Place,
    *,
    lock: int | None = None,
    idle: float = 0.0,
    limits: ServerLimits | None = None,
    state_limits: Limits | None = None,
    log: Callable[[str], None] = lambda text: None,
) -> Iterator[Server]:
    """Run a broker in a thread. A lock that is held already goes over to it."""
    lock = place.try_lock() if lock is None else lock
    assert lock is not None, "another process is the broker here"
    server = Server(place, lock, idle=idle, limits=limits, state_limits=state_limits, log=log)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop("the test is over")
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Wire:
    """A socket to a broker, and the little that is needed to talk over it."""

    def __init__(self, place: Place) -> None:
        sock = place.connect()
        assert sock is not None, "no broker serves"
        self.sock = sock
        self.key = os.urandom(16).hex()
        self.uid = name_of(self.key)
        self.adapter_key = os.urandom(16).hex()
        self.adapter = name_of(self.adapter_key)
        self.events: list[tuple[dict[str, Any], list[PassedFd]]] = []
        self._next = 1
        self._came: list[tuple[dict[str, Any], list[PassedFd]]] = []
        """Messages of a datagram whose first was read."""

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def hello(self, **more: Any) -> "Wire":
        """Become a process with an adapter."""
        pidfd = os.pidfd_open(os.getpid())
        try:
            fields = {"version": VERSION, "key": self.key, "pid": os.getpid(), **more}
            self.ask("hello", [pidfd], **fields)
        finally:
            os.close(pidfd)
        self.ask("adapter", key=self.adapter_key)
        return self

    def send(self, message: dict[str, Any] | bytes, fds: Sequence[int] = ()) -> None:
        data = message if isinstance(message, bytes) else encode(message)
        while True:
            try:
                return send(self.sock, data, fds)
            except BlockingIOError:
                self._wait(select.POLLOUT)

    def raw(self, op: str, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        ident, self._next = self._next, self._next + 1
        self.send({"op": op, "id": ident, **fields}, fds)
        while True:
            message, came = self.read()
            if "ev" in message:
                self.events.append((message, came))
            elif message["re"] in (ident, 0):
                return message

    def ask(self, op: str, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        reply = self.raw(op, fds, **fields)
        assert reply["status"] == 0, reply
        return reply

    def read(self) -> tuple[dict[str, Any], list[PassedFd]]:
        """Return the next message; EOFError when the broker hung up."""
        if not self._came:
            self._wait(select.POLLIN)
            datagram = receive(self.sock)
            if not datagram.data:
                raise EOFError
            assert not datagram.cut
            self._came = [(decode(each), datagram.fds) for each in split(datagram.data)]
            assert len(self._came) == 1 or not datagram.fds
        return self._came.pop(0)

    def hung_up(self) -> bool:
        """Wait until the broker hangs up; False when it answers instead."""
        try:
            self.read()
        except EOFError:
            return True
        return False

    def _wait(self, what: int) -> None:
        poll = select.poll()
        poll.register(self.sock, what)
        assert poll.poll(PATIENCE * 1000), "the broker keeps silent"

    def bind(self, number: int, kind: str, port: int = 0) -> int:
        reply = self.ask(
            "bind", adapter=self.adapter, object=number, kind=kind, host="127.0.0.1", port=port
        )
        assert isinstance(reply["port"], int)
        return reply["port"]

    def listen(self, number: int, port: int = 0, backlog: int = 0) -> int:
        port = self.bind(number, "listener", port)
        self.ask("listen", object=number, backlog=backlog)
        return port

    def connect(self, number: int, port: int, **more: Any) -> int:
        local = self.bind(number, "connector")
        reply = self.ask(
            "connect",
            adapter=self.adapter,
            object=number,
            local=["127.0.0.1", local],
            host="127.0.0.1",
            port=port,
            **more,
        )
        assert isinstance(reply["connection"], int)
        return reply["connection"]

    def event(self, name: str) -> tuple[dict[str, Any], list[PassedFd]]:
        """Return the next event of a name, leaving out others before it."""
        while True:
            message, fds = self.events.pop(0) if self.events else self.read()
            if message.get("ev") == name:
                return message, fds
