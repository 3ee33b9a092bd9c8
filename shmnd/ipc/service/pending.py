# SPDX-License-Identifier: Apache-2.0
"""What a client has of a request: its answer to come, or the stream of its values."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, SupportsIndex

from shmnd.common.closing import Closing, Ending, refuse_copy
from shmnd.common.deadline import end_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from shmnd.ipc.service.service_values import Answer

__all__ = ["MOST_UNREAD", "Pending", "Stream"]

MOST_UNREAD: Final = 32768
"""Values of a stream that a client keeps until the program reads them."""


class _Client(Protocol):
    """What a request needs of its client."""

    @property
    def name(self) -> str: ...
    def _wait(self, pending: Pending, end: float, call: str) -> bool: ...
    async def _await(self, pending: Pending, end: float, call: str) -> bool: ...
    def _take_now(self, pending: Pending, call: str) -> None: ...
    def _take_answers(self, *, lost: bool = True) -> None: ...
    def _forget_unseen(self, pending: Pending) -> None: ...
    def _end_stream(self, pending: Pending) -> None: ...
    def _late(self, call: str) -> TimeoutError: ...


class _Waiter(Protocol):
    """A task that waits."""

    def wake(self) -> None: ...


class Pending(Ending):
    """A request under way: `result`, or `await` it, as often as you like: it keeps the answer."""

    def __init__(self, client: _Client, number: int, most: int = 1) -> None:
        self._client = client
        self._number = number
        self._most = most  # values that it keeps of a stream
        self._unsent = False  # it waits for room
        self._server: tuple[int, int] | None = None  # its member number and process
        self._unclaimed = 0.0
        self._answers: deque[Answer] = deque()
        self._failure: BaseException | None = None
        self._over = False
        self._streamed = False  # a stream; or a value came that is not the last
        self._waiting = 0  # threads and tasks
        self._waiters: list[_Waiter] = []  # the tasks among them

    def done(self) -> bool:
        """Return whether the answer is there, without waiting."""
        self._client._take_now(self, "Pending.done")
        self._see()
        return self._is_answered()

    def _is_answered(self) -> bool:
        """Return whether a value is there, or none comes any more."""
        return bool(self._answers or self._over)

    def _see(self) -> None:
        """Note that the program asks for its news."""
        self._client._forget_unseen(self)

    def result(self, timeout: float | None = None) -> Answer:
        """Wait for the answer; TimeoutError. What the server raised is raised here."""
        return self._result(timeout, "Pending.result")

    def _result(self, timeout: float | None, call: str) -> Answer:
        self._wait(timeout, call)
        return self._first(call)

    async def _aresult(self, timeout: float | None, call: str) -> Answer:
        await self._await(timeout, call)
        return self._first(call)

    def _wait(self, timeout: float | None, call: str) -> None:
        """Wait for a value, or the end of the answer."""
        self._waiting += 1
        try:
            if not self._client._wait(self, end_of(timeout, call), call):
                raise self._client._late(call)
        finally:
            self._waiting -= 1

    async def _await(self, timeout: float | None, call: str) -> None:
        self._waiting += 1
        try:
            if not await self._client._await(self, end_of(timeout, call), call):
                raise self._client._late(call)
        finally:
            self._waiting -= 1

    def _first(self, call: str) -> Answer:
        """Return the first value, which stays: others may wait for it, or ask again."""
        self._see()
        if self._answers:
            return self._answers[0]
        if self._failure is not None:
            raise self._failure
        raise RuntimeError(f"{call}: the server answered with an empty stream")

    def _taken(self) -> Answer | None:
        """Return the next value of a stream; None at its end."""
        self._see()
        if self._answers:
            answer = self._answers[0]
            del self._answers[0]  # no call: a handler that raises behind it would lose the value
            return answer
        if self._failure is not None:
            raise self._failure
        return None

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        refuse_copy(self, "its client gets one answer; pass that on")

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._aresult(None, "Pending").__await__()

    def _end_of_life(self) -> None:
        self._see()
        if self._streamed:
            self._client._end_stream(self)  # the program wanted the first value alone

    def __repr__(self) -> str:
        return f"<Pending {self._number} {'answered' if self._over else 'under way'}>"


class Stream(Closing):
    """The values of a streamed answer, for `for` and `async for`.

    `close()` ends it before its last value, and so does the end of a `with` block, or dropping it.
    """

    def __init__(self, pending: Pending, timeout: float | None = None) -> None:
        self._pending = pending
        self._timeout = timeout  # of each value; after a TimeoutError the stream continues
        pending._streamed = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        self._pending._wait(self._timeout, "Client.stream")
        answer = self._pending._taken()
        if answer is None:
            raise StopIteration
        return answer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Answer:
        await self._pending._await(self._timeout, "Client.stream")
        answer = self._pending._taken()
        if answer is None:
            raise StopAsyncIteration
        return answer

    def close(self) -> None:
        """Read no more: the server closes its generator at the next value. Harmless when repeated.

        Values that have come and were not read are dropped.
        """
        self._pending._client._end_stream(self._pending)

    async def aclose(self) -> None:
        """Read no more, as `close` does; it waits for nothing."""
        self.close()

    def __repr__(self) -> str:
        pending = self._pending
        waiting = len(pending._answers)
        state = "at its end" if pending._over and not waiting else f"{waiting} values to be read"
        return f"<Stream {pending._number} of {pending._client.name!r}, {state}>"
