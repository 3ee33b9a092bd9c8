# SPDX-License-Identifier: Apache-2.0
"""Loops over a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shmnd.common.loops import Loop

if TYPE_CHECKING:
    from shmnd.ipc.service.request import Request

__all__ = ["RequestLoop"]


class _Server(Protocol):
    """What a loop needs of its server."""

    @property
    def _closed(self) -> bool: ...
    def _next(self, timeout: float | None, call: str) -> Request | None: ...
    async def _anext(self) -> Request | None: ...


class RequestLoop(Loop[_Server]):
    """The requests of a server as they come, until it is closed.

    The client of a request that the program drops without an answer learns of it at once.
    """

    def __next__(self) -> Request:
        server = self._source
        while server is not None and not server._closed:
            request = server._next(None, "Server")
            if request is not None:
                return request
        self._source = None
        raise StopIteration

    async def __anext__(self) -> Request:
        server = self._source
        request = None if server is None else await server._anext()
        if request is None:
            self._source = None
            raise StopAsyncIteration
        return request
