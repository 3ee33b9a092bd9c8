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
from shmnd.broker.protocol import decode, encode, receive, send
from shmnd.status import error

LIMIT: Final = 5.0
"""Seconds for an answer."""
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Visitor:
    """A connection to the broker that is there now."""

    def __init__(self, sock: socket.socket, path: str) -> None:
        self._sock = sock
        self._path = path
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

    def _ask(self, **fields: object) -> dict[str, Any]:
        send(self._sock, encode({"op": "status", "id": 1, **fields}))
        reply = self._receive()
        status, message = reply.pop("status"), reply.pop("message")
        if status != Status.SUCCESS:
            raise error(status, "broker status", message)
        del reply["re"]
        return reply

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._sock], [], [], left)[0]:
                raise error(
                    Status.IO_TIMEOUT,
                    "broker status",
                    f"the broker at {self._path} (pid {self.pid}) gave no answer in {LIMIT:g} s",
                )
            with contextlib.suppress(BlockingIOError):
                data = receive(self._sock).data
                if not data:
                    raise error(
                        Status.CONNECTION_ABORTED,
                        "broker status",
                        f"the broker at {self._path} (pid {self.pid}) closed the connection",
                    )
                return decode(data)

    def close(self) -> None:
        """Leave."""
        self._sock.close()


@contextlib.contextmanager
def visit(namespace: str | None) -> Iterator[Visitor | None]:
    """Connect to the broker of a namespace; None when there is none."""
    place = place_of(namespace)
    sock = place.connect()
    if sock is None:
        yield None
        return
    try:
        yield Visitor(sock, os.fspath(place.socket))
    finally:
        sock.close()
