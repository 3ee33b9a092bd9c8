# SPDX-License-Identifier: Apache-2.0
"""An answer of many values on its way to its client, which may be slow to take them."""

from __future__ import annotations

import contextlib
import inspect
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from shmnd.common.deadline import end_of
from shmnd.common.late import asyncio, running_loop
from shmnd.ipc.queue.waits import ROOM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmnd.ipc.queue.queueing import Queue

__all__ = ["AHEAD", "PATIENCE", "AnswerStream"]

AHEAD: Final = 64
"""Values of a stream that wait for their client before the server does."""
_BETWEEN: Final = 16
"""Values of a stream after which other tasks run in any case."""
_UNDER_WAY: Final[set[asyncio.Task[None]]] = set()
"""Streams that continue in event loops, which hold their tasks by weak references alone."""
_SHORT: Final = 20
"""Checks, one each millisecond, after which a server that is ahead sleeps at its bell."""
PATIENCE: Final = 1.0
"""The most seconds of that sleep: a client that executes another program rings no bell."""


class _Request(Protocol):
    """What a stream needs of the request that it answers."""

    _sent: int
    _answers: Queue | None
    _rest: asyncio.Task[None] | None

    @property
    def client(self) -> int: ...
    def _send_part(self, value: Any, call: str) -> None: ...
    def _finish(self) -> None: ...
    def _fail(self, exception: BaseException) -> None: ...
    def _is_ended(self) -> bool: ...
    def _must_wait(self) -> bool: ...


class AnswerStream:
    """The values of one answer.

    The client takes the values of all its streams in their order. So each one that it takes begins
    the time-out anew: another stream may have been faster to use the room.
    """

    def __init__(self, request: _Request, values: Any, timeout: float | None, call: str) -> None:
        end_of(timeout, call)  # refused before the first value
        self._request: Final = request
        self._values: Final = values
        self._timeout: Final = timeout
        self._call: Final = call
        self._end = 0.0
        self._taken = -1

    def send(self) -> asyncio.Task[None] | None:
        """Send the values. In an event loop, return the task that sends those that must wait."""
        request = self._request
        loop = running_loop()
        each, rest = iter(self._values), None
        try:
            for value in each:
                request._send_part(value, self._call)
                if loop is not None:
                    if request._sent % AHEAD == 0 or request._must_wait():
                        rest = self._continue_in(loop, each)
                        return rest
                else:
                    self._wait_for_room()
                if request._is_ended():
                    break
        finally:
            if rest is None:
                self._close_generator()  # the caller may keep it
        request._finish()
        return None

    async def asend(self) -> None:
        """Send the values, of an iterable or an asynchronous one, and let other tasks run."""
        await self._send_each(self._values)

    def _close_generator(self) -> None:
        if inspect.isgenerator(self._values):
            self._values.close()

    # -- in an event loop --

    def _continue_in(
        self, loop: asyncio.AbstractEventLoop, each: Iterator[Any]
    ) -> asyncio.Task[None]:
        """Return a task of an event loop that sends the rest."""
        self._request._rest = rest = loop.create_task(self._send_rest(each))
        _UNDER_WAY.add(rest)
        rest.add_done_callback(self._end_rest)
        return rest

    def _end_rest(self, rest: asyncio.Task[None]) -> None:
        """End the stream with its task, also one that was cancelled before any of its code ran."""
        _UNDER_WAY.discard(rest)
        if not rest.cancelled():
            rest.exception()  # its client has it, and the task that awaits this one
        with contextlib.suppress(Exception):
            self._close_generator()
        with contextlib.suppress(Exception):
            if self._request._answers is not None:
                self._request._fail(asyncio.CancelledError())

    async def _send_rest(self, each: Iterator[Any]) -> None:
        request = self._request
        try:
            await self._await_room()
            if request._is_ended():
                self._close_generator()
                request._finish()
            else:
                await self._send_each(self._values if inspect.isgenerator(self._values) else each)
        except BaseException as exc:
            if request._answers is not None:
                request._fail(exc)
            raise

    async def _send_each(self, values: Any) -> None:
        try:
            if hasattr(values, "__aiter__"):
                async for value in values:
                    if await self._part(value):
                        break
            else:
                for value in values:
                    if await self._part(value):
                        break
        finally:
            if inspect.isasyncgen(values):
                await values.aclose()
            elif inspect.isgenerator(values):
                values.close()
        self._request._finish()

    async def _part(self, value: Any) -> bool:
        """Send a value and wait for the room of the next; return whether the client reads none."""
        request = self._request
        request._send_part(value, self._call)
        if request._sent % _BETWEEN == 0:
            await asyncio.sleep(0)  # its client may read as fast as values come
        await self._await_room()
        return request._is_ended()

    # -- room for the next value --

    def _wait_for_room(self) -> None:
        for answers, longest in self._waits():
            if answers is None:
                time.sleep(longest)
            else:
                answers._wait_long(ROOM, longest, self._has_room)

    async def _await_room(self) -> None:
        for answers, longest in self._waits():
            if answers is None:
                await asyncio.sleep(longest)
            else:
                await answers._await_long(ROOM, longest, self._has_room)

    def _has_room(self) -> bool:
        return not self._request._must_wait()

    def _waits(self) -> Iterator[tuple[Queue | None, float]]:
        """Return the waits until there is room: short ones, and then those at the queue."""
        self._taken = -1  # the time-out begins
        tries = 0
        while self._request._must_wait():
            tries += 1
            left = self._left()
            answers = self._request._answers
            if tries < _SHORT or answers is None:
                yield None, min(0.001, left)
            else:
                yield answers, min(PATIENCE, left)

    def _left(self) -> float:
        """Return the seconds that are left; TimeoutError where there are none."""
        answers = self._request._answers
        if answers is None:  # another thread has answered the request: there is nothing to wait for
            return 0.0
        taken = answers._core.taken()
        if taken != self._taken:
            self._taken, self._end = taken, end_of(self._timeout, self._call)
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(
                f"{self._call}: process {self._request.client} has taken no value for "
                f"{self._timeout} s, and {AHEAD} wait for it"
            )
        return left
