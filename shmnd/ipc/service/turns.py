# SPDX-License-Identifier: Apache-2.0
"""The streams that a server has under way, which take turns.

A server that serves by a function has one thread for all. So a stream gives one value at its turn;
then come the other streams and one request. A stream whose client reads nothing is parked: its
generator rests until the client reads, ends the stream, or is gone.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shmnd.ipc.errors import PeerLost, RemoteError
from shmnd.ipc.queue.waits import ITEM, ROOM, wait_at
from shmnd.ipc.service.request import Request, fail
from shmnd.ipc.service.streaming import AHEAD, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Generator

    from shmnd.ipc.queue.queueing import Queue

__all__ = ["StreamTurns"]

_MOST: Final = 1024
"""Streams of one client that a server has under way."""
_POLLS: Final = 20
_POLL: Final = 0.001
"""Seconds after which parked streams are checked while a server has other work. Without other work
it sleeps after so many checks."""
_END: Final = object()


class StreamTurns:
    """The streams that a thread of a server has under way."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Request, Generator[Any, Any, Any]]] = deque()
        self._parked: list[tuple[Request, Generator[Any, Any, Any]]] = []
        self._next_check = 0.0
        self._next_census = 0.0  # of the clients that live
        self._polls = 0

    def __len__(self) -> int:
        return len(self._ready) + len(self._parked)

    def begin(self, request: Request, values: Generator[Any, Any, Any]) -> None:
        """Answer a request with the values of a generator."""
        client = request._answers
        if sum(each._answers is client for each, _ in (*self._ready, *self._parked)) < _MOST:
            self._ready.append((request, values))
            return
        _end(
            request,
            values,
            RuntimeError(
                f"Client.stream: {_MOST} streams of this client are under way, which is the most;"
                " read or close some first"
            ),
        )

    def take(self) -> bool:
        """Send a value of each stream whose client has room; return whether any may have more."""
        if self._parked and time.monotonic() >= self._next_check:
            self._check_parked()
        for _ in range(len(self._ready)):
            request, values = self._ready.popleft()
            if _continue(request, values):
                (self._parked if request._is_ahead() else self._ready).append((request, values))
        return bool(self._ready)

    def _check_parked(self) -> None:
        """Find parked streams that continue, or whose clients are gone."""
        now = time.monotonic()
        self._next_check = now + _POLL
        census = now >= self._next_census
        if census:
            self._next_census = now + PATIENCE
        parked, self._parked = self._parked, []
        for request, values in parked:
            if request._is_ended():
                _close(request, values)
            elif not request._is_ahead():
                self._ready.append((request, values))
                self._polls = 0
            elif census and not request._client_lives():
                request._answers = None  # it has no client
                _end(request, values, PeerLost("Request.stream: the client has gone"))
            else:
                self._parked.append((request, values))

    # -- waiting, with streams that are all parked --

    def rest(self, requests: Queue) -> float:
        """Sleep until a stream may continue or a request waits; return how long to poll for one."""
        self._polls += 1
        if self._polls <= _POLLS:
            return _POLL
        self._next_check = self._next_census = 0.0  # a death ends the sleep, too
        waiting: dict[Queue, list[Request]] = {}
        for request, _ in self._parked:
            if request._answers is not None:
                waiting.setdefault(request._answers, []).append(request)
        rooms = ((each, ROOM, partial(_has_room, waiting[each])) for each in waiting)
        wait_at((requests, ITEM, None), *rooms, left=PATIENCE)
        return 0.0

    # -- the end --

    def finish(self) -> None:
        """End the streams of a closed server, after a last chance to end by themselves.

        They give as many values as they might be ahead of their clients, without a wait.
        """
        for _ in range(AHEAD):
            self._next_check = 0.0
            if not self.take():
                break
        self.end(RemoteError("the server was closed before the last value of the stream"))

    def end(self, exc: BaseException) -> None:
        """End all streams with an exception."""
        streams = [*self._ready, *self._parked]
        self._ready.clear()
        self._parked.clear()
        for request, values in streams:
            _end(request, values, exc)


def _has_room(requests: list[Request]) -> bool:
    return any(not each._is_ahead() for each in requests)


def _continue(request: Request, values: Generator[Any, Any, Any]) -> bool:
    """Send the next value of a stream; return False when the stream has ended."""
    try:
        value = next(values, _END)
        if value is not _END:
            request._send_part(value, "Request.stream")
            if not request._is_ended():
                return True
    except BaseException as exc:
        _end(request, values, exc)
        if not isinstance(exc, Exception):
            raise
        return False
    _close(request, values)
    return False


def _close(request: Request, values: Generator[Any, Any, Any]) -> None:
    """End a stream whose client reads no more, or that has no further value."""
    try:
        values.close()
        request._finish()
    except Exception as exc:
        fail(request, exc)


def _end(request: Request, values: Generator[Any, Any, Any], exc: BaseException) -> None:
    """End a stream with an exception."""
    try:
        values.close()
    except Exception as later:
        exc = later
    fail(request, exc)
