# SPDX-License-Identifier: Apache-2.0
"""Requests that a server has taken, and their answers."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any, Final, Protocol, SupportsIndex

import numpy as np

from shmnd.common.closing import Ending, refuse_copy
from shmnd.common.interruption import is_interruption
from shmnd.common.late import asyncio
from shmnd.ipc.errors import PeerLost, RemoteError, require_process
from shmnd.ipc.service.asking import is_open
from shmnd.ipc.service.service_values import (
    Loan,
    Unreadable,
    conforming,
    failure_of,
    room_for,
    unreadable_here,
)
from shmnd.ipc.service.streaming import AHEAD, AnswerStream

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmnd.ipc.queue.queueing import Queue

__all__ = ["Request", "UnreadableRequest", "fail", "fail_unless_fit"]


class _Server(Protocol):
    """What a request needs of its server."""

    response: Any


class Request(Ending):
    """A request that a server has taken. It is answered once; dropped, it fails."""

    def __init__(
        self,
        server: _Server,
        answers: Queue | None,
        number: int,
        client: tuple[int, int],
        value: Any,
    ) -> None:
        self._server = server
        self._answers = answers
        self._number = number
        self._sent = 0
        self._rest: asyncio.Task[None] | None = None
        """The rest of a stream that continues in an event loop."""
        self._pid = os.getpid()
        self._member = client[0]
        self.client: Final[int] = client[1]
        """The process that asks."""
        self.value: Any = value
        """What it asks; arrays are the server's own."""

    @property
    def array(self) -> Any:
        """The value as an array."""
        return np.asarray(self.value)

    @property
    def answered(self) -> bool:
        """Whether the request is answered, or needs no answer any more."""
        return self._answers is None or self._rest is not None

    def _send(self, kind: str, value: Any) -> None:
        answers = self._answers
        if answers is None:
            raise RuntimeError("Request: it was answered before; a request has one answer")
        try:
            answers._put_or_drop((self._number, kind, self._sent, os.getpid(), value))
        except (pickle.PicklingError, AttributeError, TypeError) as exc:
            if is_interruption(exc):
                raise
            call = "Request.respond" if kind == "value" else "Request.stream"
            raise TypeError(
                f"{call}: the answer cannot be pickled: {exc}; respond with numbers, text, "
                "arrays, or objects of classes that a module defines"
            ) from exc
        self._sent += 1

    def _refuse_in_stream(self) -> None:
        if self._rest is not None and self._answers is not None:
            raise RuntimeError("Request: a stream of it is under way; a request has one answer")

    def respond(self, value: Any) -> None:
        """Answer with a value."""
        self._refuse_in_stream()
        self._send("value", conforming(value, self._server.response, "Request.respond"))
        self._answers = None

    def fail(self, exception: BaseException | type[BaseException]) -> None:
        """Answer with an exception: a built-in one as itself, others as `ipc.RemoteError`."""
        self._refuse_in_stream()
        if isinstance(exception, type):
            exception = exception()  # as `raise` does
        given: object = exception
        if not isinstance(given, BaseException):
            raise TypeError(f"Request.fail: {given!r} is not an exception; pass one")
        self._fail(given)

    def _fail(self, exception: BaseException) -> None:
        self._send("failure", failure_of(exception))
        self._answers = None

    def loan(self, shape: Any = None, dtype: Any = None) -> Loan:
        """Return memory to compute the answer into; without arguments, of the response's type."""
        wanted = self._server.response
        return Loan(self, room_for(wanted, shape, dtype, "Request.loan"), wanted is bytes)

    def stream(
        self, values: Iterable[Any], timeout: float | None = None
    ) -> asyncio.Task[None] | None:
        """Answer with any number of values, one after the other.

        It returns before the last one when the client has closed the stream. It waits for a client
        that is slow, except in an event loop: a task, which is returned, sends the rest there.
        TimeoutError where the client takes none for `timeout` seconds: the request is to be failed.
        """
        self._refuse_in_stream()
        return AnswerStream(self, values, timeout, "Request.stream").send()

    def _is_ended(self) -> bool:
        """Return whether the client has closed the stream of the answer."""
        answers = self._answers
        return answers is not None and answers._core.stream_ended(self._member, self._number)

    def _send_part(self, value: Any, call: str) -> None:
        self._send("part", conforming(value, self._server.response, call))

    async def astream(self, values: Any, timeout: float | None = None) -> None:
        """Answer with the values of an iterable or an asynchronous one; other tasks run.

        TimeoutError as in `stream`.
        """
        self._refuse_in_stream()
        await AnswerStream(self, values, timeout, "Request.astream").asend()

    def _is_ahead(self) -> bool:
        """Return whether the client has more than enough to read."""
        answers = self._answers
        return answers is not None and answers.qsize() >= AHEAD and not self._is_ended()

    def _client_lives(self) -> bool:
        answers = self._answers
        return answers is not None and is_open(answers._core, self._member, self.client)

    def _must_wait(self) -> bool:
        """Return whether a stream must wait for its client; PeerLost when that has gone."""
        answers = self._answers
        if answers is None or not self._is_ahead():
            return False
        # Of that queue: another thread may have answered the request meanwhile.
        if not is_open(answers._core, self._member, self.client):
            self._answers = None
            raise PeerLost(f"Request.stream: process {self.client} has died or closed its client")
        return True

    def _finish(self) -> None:
        """Answer with no further value."""
        self._send("end", None)
        self._answers = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        refuse_copy(self, "it is answered once; pass its value on")

    def _end_of_life(self) -> None:
        # A child that was forked off and ends has not taken it.
        if self._answers is not None and self._pid == os.getpid():
            self._fail(RemoteError("the server dropped the request without an answer"))

    def __repr__(self) -> str:
        state = "answered" if self.answered else "open"
        return f"<Request {self._number} of process {self.client}, {state}>"


def fail(request: Request, exc: BaseException) -> None:
    """Answer a request whose handler ended with an exception, unless it was answered."""
    if not request.answered:
        request.fail(exc)


class UnreadableRequest(Exception):
    """A request was taken that cannot be read: its argument says why."""


def fail_unless_fit(request: Request, type_: Any, pid: int, call: str) -> bool:
    """Make the value as its type wants it, or fail the request, and return whether that failed it.

    UnreadableRequest: it has failed, since its value cannot be unpickled here.
    A child that was forked within the call says nothing to the client.
    """
    value = request.value
    if isinstance(value, Unreadable):
        require_process(pid, call, "server")
        request.fail(unreadable_here(value.error))
        raise UnreadableRequest(value.error)
    try:
        request.value = conforming(value, type_, "Client.send")
    except Exception as exc:  # also of methods of its own, as `__array__`
        if is_interruption(exc):
            raise
        require_process(pid, call, "server")
        request.fail(exc)
    return request.answered
