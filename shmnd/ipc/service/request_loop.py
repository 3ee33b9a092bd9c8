# SPDX-License-Identifier: Apache-2.0
"""Loops over a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, Self

if TYPE_CHECKING:
    from shmnd.ipc.service.request import Request

__all__ = ["RequestLoop"]


class _Server(Protocol):
    """What a loop needs of its server."""

    @property
    def _closed(self) -> bool: ...
    def _next(self, timeout: float | None, call: str) -> Request | None: ...
    async def _anext(self) -> Request | None: ...


class RequestLoop:
    """The requests of a server as they come, until it is closed.

    No generator: it would hold each request until the next one comes, also one that was dropped
    without an answer, whose client would wait as long.
    """

    def __init__(self, server: _Server) -> None:
        self._server: Final = server

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Request:
        while not self._server._closed:
            request = self._server._next(None, "Server")
            if request is not None:
                return request
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Request:
        request = await self._server._anext()
        if request is None:
            raise StopAsyncIteration
        return request
