# SPDX-License-Identifier: Apache-2.0
"""Loops over a server, and over a connection."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from shmnd.common.interruption import pass_on
from shmnd.common.loops import Loop
from shmnd.messaging.errors import ServerClosedError

__all__ = ["ArrivalLoop", "MessageLoop"]

_C_co = TypeVar("_C_co", covariant=True)
_C = TypeVar("_C")


class _Server(Protocol[_C_co]):
    """The part of a server that a loop uses."""

    @property
    def closed(self) -> bool: ...
    def accept(self) -> _C_co: ...
    async def aaccept(self) -> _C_co: ...


class _Connection(Protocol):
    """The part of a connection that a loop uses."""

    def recv_bytes(self) -> bytes: ...
    async def arecv_bytes(self) -> bytes: ...


class ArrivalLoop(Loop[_Server[_C]], Generic[_C]):
    """The connections of a server as they come, until it is closed."""

    def __next__(self) -> _C:
        server = self._source
        try:
            if server is not None and not server.closed:
                return server.accept()
        except ServerClosedError:
            pass
        self._source = None
        raise StopIteration

    async def __anext__(self) -> _C:
        server = self._source
        try:
            if server is not None and not server.closed:
                return await server.aaccept()
        except ServerClosedError:
            pass
        self._source = None
        raise StopAsyncIteration


class MessageLoop(Loop[_Connection]):
    """The messages of a connection as they arrive, until the peer closes."""

    def __next__(self) -> bytes:
        connection = self._source
        try:
            if connection is not None:
                return connection.recv_bytes()
        except EOFError as exc:
            pass_on(exc)
        self._source = None
        raise StopIteration

    async def __anext__(self) -> bytes:
        connection = self._source
        try:
            if connection is not None:
                return await connection.arecv_bytes()
        except EOFError as exc:
            pass_on(exc)
        self._source = None
        raise StopAsyncIteration
