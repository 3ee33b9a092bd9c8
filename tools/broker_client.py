# SPDX-License-Identifier: Apache-2.0
"""A visitor's look at a broker: it starts none, declares nothing, and holds nothing."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, Final

from shmnd import Status
from shmnd.broker.place import place_of
from shmnd.broker.protocol import Descriptor, decode, encode, receive, send
from shmnd.status import error

LIMIT: Final = 5.0
"""Seconds for an answer."""
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Visitor:
    """A connection to the broker that is there now."""

    def __init__(self, sock: socket.socket, path: str, limit: float | None = None) -> None:
        self._sock = sock
        self._path = path
        self._limit = LIMIT if limit is None else limit
        packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(packed)[0]
        """The broker's process, as the kernel knows it."""

    def counts(self) -> dict[str, int]:
        """Ask how many processes, adapters, listeners and connections there are."""
        return self._ask(kind="none", after=0)

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Ask for all records of a kind, page by page."""
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            reply = self._ask(kind=kind, after=after)
            found += reply["page"]
            after = reply["next"]
            if not after:
                return found

    def tallies(self) -> Iterator[tuple[dict[str, Any], Descriptor]]:
        """Ask for the segments that adapters keep for those who look on."""
        after = 0
        while True:
            reply, fds = self._exchange(kind="tallies", after=after)
            yield from zip(reply["page"], fds, strict=False)  # fewer, where none is free here
            after = reply["next"]
            if not after:
                return

    def _ask(self, **fields: object) -> dict[str, Any]:
        return self._exchange(**fields)[0]

    def _exchange(self, **fields: object) -> tuple[dict[str, Any], list[Descriptor]]:
        send(self._sock, encode({"op": "status", "id": 1, **fields}))
        reply, fds = self._receive()
        status, message = reply.pop("status"), reply.pop("message")
        if status != Status.SUCCESS:
            raise error(status, "broker status", message)
        del reply["re"]
        return reply, fds

    def _receive(self) -> tuple[dict[str, Any], list[Descriptor]]:
        deadline = time.monotonic() + self._limit
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._sock], [], [], left)[0]:
                raise error(
                    Status.IO_TIMEOUT,
                    "broker status",
                    f"the broker at {self._path} (pid {self.pid}) gave no answer in"
                    f" {self._limit:g} s",
                )
            with contextlib.suppress(BlockingIOError):
                datagram = receive(self._sock)
                if not datagram.data:
                    raise error(
                        Status.CONNECTION_ABORTED,
                        "broker status",
                        f"the broker at {self._path} (pid {self.pid}) closed the connection",
                    )
                return decode(datagram.data), datagram.fds

    def close(self) -> None:
        """Leave."""
        self._sock.close()


@contextlib.contextmanager
def visit(namespace: str | None, limit: float | None = None) -> Iterator[Visitor | None]:
    """Connect to the broker of a namespace; None when there is none.

    It has `limit` seconds for each answer.
    """
    place = place_of(namespace)
    sock = place.connect()
    if sock is None:
        yield None
        return
    try:
        yield Visitor(sock, os.fspath(place.socket), limit)
    finally:
        sock.close()
