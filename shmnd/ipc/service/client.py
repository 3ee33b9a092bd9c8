# SPDX-License-Identifier: Apache-2.0
"""Clients: they send requests to the servers of a name, any number at once, and get answers."""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, Final

from shmnd.common.closing import Closing
from shmnd.common.deadline import end_after, left_until
from shmnd.ipc.common.ringing import PAUSE
from shmnd.ipc.errors import PeerLost, unusable
from shmnd.ipc.queue.queueing import Queue
from shmnd.ipc.service.server import open_service
from shmnd.ipc.service.service_values import Answer, conforming, described, raised_from

__all__ = ["Client", "Pending"]

_UNCLAIMED: Final = 2.0
"""Seconds after which a request that was taken and that no living server claims is lost."""


class Pending:
    """A request under way: `result`, or `await` it."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._number = number
        self._pos = -1
        self._server = -1
        self._unclaimed = 0.0
        self._answers: deque[Answer] = deque()
        self._failure: Exception | None = None
        self._over = False

    def done(self) -> bool:
        """Return whether the answer is there, without waiting."""
        self._client._look()
        return bool(self._answers or self._over)

    def result(self, timeout: float | None = None) -> Answer:
        """Wait for the answer; TimeoutError. What the server raised is raised here."""
        answer = self._next(timeout, "Pending.result")
        if answer is None:
            raise RuntimeError("Pending.result: the server answered with an empty stream")
        return answer

    def _next(self, timeout: float | None, call: str) -> Answer | None:
        """Return the next value; None at the end of a stream."""
        if not self._client._wait(self, timeout):
            raise self._client._late(call)
        return self._taken()

    async def _anext(self, timeout: float | None, call: str) -> Answer | None:
        if not await self._client._await(self, timeout):
            raise self._client._late(call)
        return self._taken()

    def _taken(self) -> Answer | None:
        if self._answers:
            return self._answers.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._awaited().__await__()

    async def _awaited(self) -> Answer:
        answer = await self._anext(None, "Pending")
        if answer is None:
            raise RuntimeError("Pending: the server answered with an empty stream")
        return answer

    def __repr__(self) -> str:
        return f"<Pending {self._number} {'answered' if self._over else 'under way'}>"


class Stream:
    """The values of a streamed answer, for `for` and `async for`."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending

    def __iter__(self) -> Iterator[Answer]:
        while (answer := self._pending._next(None, "Client.stream")) is not None:
            yield answer

    def __next__(self) -> Answer:
        answer = self._pending._next(None, "Client.stream")
        if answer is None:
            raise StopIteration
        return answer

    async def __aiter__(self) -> AsyncIterator[Answer]:
        while (answer := await self._pending._anext(None, "Client.stream")) is not None:
            yield answer


class Client(Closing):
    """A client of a name, whether a server is there already or comes later."""

    def __init__(
        self,
        name: str,
        request: Any = None,
        response: Any = None,
        *,
        buffer: int = 8,
        namespace: str | None = None,
        group: int | str | None = None,
    ) -> None:
        self._closed = True
        self._pid = os.getpid()
        self.request: Final = request
        self.response: Final = response
        self.name: Final[str] = name
        types = {
            "request": described(request, "Client"),
            "response": described(response, "Client"),
        }
        self._named, self._requests = open_service(
            "Client", "client", name, types, buffer, namespace, group
        )
        self._answers = Queue()
        found = os.fstat(self._answers._core.fd)
        self._where = (self._pid, self._answers._core.fd, found.st_dev, found.st_ino)
        self._numbers = itertools.count(1)
        self._pending: weakref.WeakValueDictionary[int, Pending] = weakref.WeakValueDictionary()
        self._lock = threading.RLock()
        self._next_search = 0.0
        self._closed = False

    # -- asking --

    def send(self, value: Any, timeout: float | None = None) -> Pending:
        """Send a request and return at once; TimeoutError while too many requests wait."""
        pending, item = self._begun(value, "Client.send")
        try:
            self._requests.put(item, True, timeout)
        except queue.Full:
            raise self._late("Client.send") from None
        pending._pos = self._requests._core.last_pos
        return pending

    def _begun(self, value: Any, call: str) -> tuple[Pending, tuple[Any, ...]]:
        self._check(call)
        value = conforming(value, self.request, call)
        pending = Pending(self, next(self._numbers))
        self._pending[pending._number] = pending
        return pending, (*self._where, pending._number, self._answers._core.me, value)

    async def _asend(self, value: Any, timeout: float | None) -> Pending:
        pending, item = self._begun(value, "Client.acall")
        try:
            await self._requests.aput(item, timeout)
        except queue.Full:
            raise self._late("Client.acall") from None
        pending._pos = self._requests._core.last_pos
        return pending

    def call(self, value: Any = None, timeout: float | None = None) -> Answer:
        """Send a request and wait for its answer; TimeoutError."""
        end = None if timeout is None else end_after(timeout)
        return self.send(value, timeout).result(left_until(end))

    async def acall(self, value: Any = None, timeout: float | None = None) -> Answer:
        """Call as `call` does, and let other tasks run meanwhile."""
        end = None if timeout is None else end_after(timeout)
        pending = await self._asend(value, timeout)
        answer = await pending._anext(left_until(end), "Client.acall")
        if answer is None:
            raise RuntimeError("Client.acall: the server answered with an empty stream")
        return answer

    def stream(self, value: Any = None) -> Stream:
        """Send a request and return the values of its answer as they come."""
        return Stream(self.send(value))

    # -- answers --

    def _look(self) -> None:
        """Take all answers that are there."""
        with self._lock:
            while True:
                try:
                    item = self._answers.get(False)
                except queue.Empty:
                    break
                self._sort(item)

    def _sort(self, item: Any) -> None:
        number, kind, sequence, server, value = item
        pending = self._pending.get(number)
        if pending is None or pending._over:
            return  # the program waits for it no more
        if kind == "taken":
            pending._server = value
        elif kind == "failure":
            pending._failure = raised_from(value)
            pending._over = True
        elif kind == "end":
            pending._over = True
        else:
            pending._answers.append(Answer(value, sequence, server))
            pending._over = kind == "value"

    def _wait(self, pending: Pending, timeout: float | None) -> bool:
        end = end_after(timeout)
        while True:
            self._check("Client")
            if pending._answers or pending._over:
                return True
            left = end - time.monotonic()
            # One thread takes the answers of all.
            if self._lock.acquire(timeout=max(0.0, min(left, 0.002))):
                try:
                    if pending._answers or pending._over:
                        return True
                    item = self._answers.get(True, max(0.0, min(left, PAUSE)))
                    self._sort(item)
                    self._look()
                    continue
                except queue.Empty:
                    self._find_lost()
                finally:
                    self._lock.release()
            if left <= 0:
                return bool(pending._answers or pending._over)

    async def _await(self, pending: Pending, timeout: float | None) -> bool:
        end = end_after(timeout)
        while True:
            self._check("Client")
            bell = self._answers._bell_of()
            self._look()
            if pending._answers or pending._over:
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            if time.monotonic() >= self._next_search:
                self._find_lost()
            await bell.ringing(min(left, PAUSE))

    def _find_lost(self) -> None:
        """End the requests whose servers died."""
        now = time.monotonic()
        self._next_search = now + PAUSE
        core = self._answers._core
        dead: dict[int, bool] = {}
        for pending in list(self._pending.values()):
            if pending._over:
                continue
            if pending._server >= 0:
                if pending._server not in dead:
                    dead[pending._server] = not core.lives(pending._server)
                lost = dead[pending._server]
            elif pending._pos >= 0 and self._requests._core.passed(pending._pos):
                pending._unclaimed = pending._unclaimed or now
                lost = now - pending._unclaimed > _UNCLAIMED
            else:
                lost = False
            if lost:
                pending._failure = PeerLost(
                    f"Client: the server of {self.name!r} that took the request has died"
                )
                pending._over = True

    def _late(self, call: str) -> TimeoutError:
        servers = sum(entry.data.get("role") == "server" for entry in self._named.entries())
        there = f"{servers} servers are there" if servers else "no server is there"
        return TimeoutError(f"{call}: the time-out ended; no answer of {self.name!r}, {there}")

    # -- the end --

    def fileno(self) -> int:
        """Return a descriptor that is readable when an answer may have come."""
        self._check("Client.fileno")
        return self._answers.fileno()

    def ready(self) -> bool:
        """Return whether an answer waits to be taken."""
        self._check("Client.ready")
        return self._answers.ready()

    def _check(self, call: str) -> None:
        if self._closed or self._pid != os.getpid():
            raise unusable(call, "client", closed=self._closed)

    def close(self) -> None:
        """Wait for no more answers. Harmless when repeated."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            return
        self._answers.close()
        self._requests.close()
        self._named.close()

    def __repr__(self) -> str:
        under_way = sum(not each._over for each in list(self._pending.values()))
        state = "closed" if self._closed else f"{under_way} requests under way"
        return f"<Client {self.name!r} {state}>"
