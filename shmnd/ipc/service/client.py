# SPDX-License-Identifier: Apache-2.0
"""Clients: they send requests to the servers of a name, any number at once, and get answers."""

from __future__ import annotations

import itertools
import os
import queue
import time
from typing import Any, Final

from shmnd.common.closing import surely
from shmnd.common.deadline import end_of, left_until
from shmnd.common.held import Held
from shmnd.common.interruption import pass_on
from shmnd.common.late import running_loop
from shmnd.ipc.common.closed import descriptor_while_open
from shmnd.ipc.common.processes import own_process
from shmnd.ipc.common.ringing import PAUSE, Bell
from shmnd.ipc.errors import in_process, require_process
from shmnd.ipc.service.answers import MARKS, Answers
from shmnd.ipc.service.asking import clients_here
from shmnd.ipc.service.awaiting import AnswerWaiter, Awaiting
from shmnd.ipc.service.pending import MOST_UNREAD, Pending, Stream
from shmnd.ipc.service.service_values import Answer, conforming
from shmnd.ipc.service.unsent import Unsent
from shmnd.status import NdError

__all__ = ["Client", "Pending"]

_SENT: Final = 1024
"""Requests after which a client that only sends takes its answers: a full queue of answers takes
none more, and servers do not wait for it."""
_LONGEST: Final = 1e6
"""Seconds of a wait that has an end: a lock takes no infinite time-out."""
_NO_ROOM: Final = "no room for one more request to"


class Client(Answers):
    """A client of a name, whether a server is there already or comes later."""

    _title = "Client"

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
        super().__init__(name, request, response, buffer, namespace, group)
        self._begin_without_answers()
        core = self._answers._core
        found = os.fstat(core.fd)
        descriptor = core.fd, found.st_dev, found.st_ino
        self._where = (*own_process(), self._named.seen_as(), *descriptor)
        self._numbers = itertools.count(1)
        self._unread = 0  # requests since a send took the answers
        self._unsent: Final = Unsent(self._requests, self._answers, self._under_way)
        self._awaiting: Final = Awaiting()
        self._closed = self._has_left = False
        clients_here.add(core)

    # -- asking --

    def send(self, value: Any, timeout: float | None = None) -> Pending:
        """Send a request and return at once; TimeoutError while too many requests wait.

        Without a time-out it waits for room, but not in an event loop, which sends it later.
        """
        return self._sent(value, timeout, 1, "Client.send")

    def _sent(self, value: Any, timeout: float | None, most: int, call: str) -> Pending:
        """Send a request, of whose answer at most `most` values are kept until they are read."""
        end = end_of(timeout, call)
        loop = running_loop() if timeout is None else None
        pending, item = self._begun(value, call, most)
        if loop is None:
            self._put(pending, item, end, call)
        else:
            self._unsent.send(pending, item, loop)
        require_process(self._pid, call, "client")
        return pending

    def _put(self, pending: Pending, item: Any, end: float, call: str) -> None:
        try:
            noted = self._under_way.entry_of(pending)
            self._unsent.put(item, end, noted, self._take_what_came)
        except queue.Full:
            pending._over = True
            raise self._late(call, _NO_ROOM) from None
        except (ValueError, RuntimeError):
            self._check(call)  # another thread has closed it, or a child has not asked
            raise

    def _begun(self, value: Any, call: str, most: int = 1) -> tuple[Pending, tuple[Any, ...]]:
        self._check(call)
        value = conforming(value, self.request, call)
        pending = Pending(self, self._next_number(), most)
        self._unread += 1
        if self._unread > _SENT:
            self._take_answers(lost=False)
            self._unread = 0  # not where a handler of a signal ended it: the next send continues
        self._pending[pending._number] = pending
        return pending, (*self._where, pending._number, self._answers._core.me, value)

    async def _aput(self, pending: Pending, item: Any, end: float, call: str) -> None:
        try:
            noted = self._under_way.entry_of(pending)
            while not await self._unsent.aput(item, left_until(end), noted, self._pid):
                self._take_what_came()
        except queue.Full:
            pending._over = True
            raise self._late(call, _NO_ROOM) from None
        except (ValueError, RuntimeError):
            self._check(call)  # another thread has closed it, or this is a child by now
            raise

    def call(self, value: Any = None, timeout: float | None = None) -> Answer:
        """Send a request and wait for its answer; TimeoutError.

        When it ends without an answer, a server that has not taken the request leaves it out.
        """
        call = "Client.call"
        end = end_of(timeout, call)
        pending, item = self._begun(value, call)
        try:
            self._put(pending, item, end, call)
            return pending._result(left_until(end), call)
        except BaseException:
            surely(self._end_stream, pending)  # the answer has no taker any more
            raise

    async def acall(self, value: Any = None, timeout: float | None = None) -> Answer:
        """Call as `call` does, and let other tasks run meanwhile."""
        call = "Client.acall"
        end = end_of(timeout, call)
        pending, item = self._begun(value, call)
        try:
            await self._aput(pending, item, end, call)
            return await pending._aresult(left_until(end), call)
        except BaseException:
            surely(self._end_stream, pending)
            raise

    def stream(self, value: Any = None, timeout: float | None = None) -> Stream:
        """Send a request and return the values of its answer; each comes within `timeout`."""
        call = "Client.stream"
        end_of(timeout, call)  # before the request is sent
        room = timeout if running_loop() is None else None  # a loop waits for room by itself
        return Stream(self._sent(value, room, MOST_UNREAD, call), timeout)

    def _take_what_came(self) -> None:
        """Take the answers that are there while it waits for room, and detect no lost ones."""
        self._take_answers(lost=False)

    def _forget_unseen(self, pending: Pending) -> None:
        self._under_way.unseen.pop(pending._number, None)

    def _next_number(self) -> int:
        """Return a number whose mark (ended.h) no closed stream has."""
        while (number := next(self._numbers)) % MARKS in self._ended:
            pass
        return number

    def _end_stream(self, pending: Pending) -> None:
        """Read no more of a stream."""
        # Without a lock where no thread waits: the collector may call this at any point.
        if not self._closed and self._pid == os.getpid():
            if not pending._over and not pending._unsent:
                self._mark(pending._number)
            pending._over = True  # after it: what a handler has interrupted is called again
            if pending._waiting:
                with Held(self._lock):
                    self._turn.notify_all()
                for waiter in tuple(pending._waiters):
                    waiter.wake()
                if self._answers._bell is not None:
                    self._answers._bell.wake_all()
        pending._answers.clear()

    # -- answers --

    def _has_come(self, pending: Pending, call: str) -> bool:
        """Return whether something of a request is there; Closed where nothing can come."""
        came = pending._is_answered()  # also of a client that was closed afterwards
        if not came or self._pid != os.getpid():
            self._check(call)
        return came

    def _take_now(self, pending: Pending, call: str) -> None:
        """Take what there is, unless the request has something."""
        if not self._has_come(pending, call):
            try:
                self._take_answers()
            except (ValueError, RuntimeError):
                self._check(call)  # another thread has closed it, or a handler has forked
                raise

    def _wait(self, pending: Pending, end: float, call: str) -> bool:
        try:
            found = self._wait_here(pending, end, call)
            require_process(self._pid, call, "client")
        except BaseException as exc:
            require_process(self._pid, call, "client", exc)
            raise
        return found

    def _wait_here(self, pending: Pending, end: float, call: str) -> bool:
        if not self._has_come(pending, call) and pending._unsent:
            self._unsent.send_now(pending, end)
        long = 0.0  # from when it sleeps where it learns of deaths
        while True:
            if self._has_come(pending, call):
                return True
            now = time.monotonic()
            left, long = end - now, long or now + PAUSE
            if self._begin():
                try:
                    self._take_for(pending, left, max(0.0, long - now))
                except ValueError:
                    self._check(call)  # another thread has closed it
                    raise
                finally:
                    self._busy = 0
                    self._end()
            elif left > 0:
                with Held(self._lock):
                    if self._busy and not pending._is_answered():
                        self._turn.wait(None if left > _LONGEST else left)
            if left <= 0:
                return pending._is_answered()

    def _take_for(self, pending: Pending, left: float, brief: float) -> None:
        """Take answers until one is for a request, or a process has died: seen from `brief` on."""
        try:
            self._take_one(True, max(0.0, min(left, brief)))
            self._take_all()
            return
        except queue.Empty:
            pass
        except ValueError:
            if not self._closed:  # by another thread
                raise
            return
        left -= brief
        if left > 0 and not self._find_lost():
            longest = min(left, self._under_way.until_lost())
            self._answers._wait_long(0, longest, lambda: self._came(pending))
            self._take_all()
        self._find_lost()

    def _came(self, pending: Pending) -> bool:
        """Return whether there is an answer to be taken, or the server of a request is lost."""
        return not self._answers.empty() or self._find_lost() or self._closed or pending._over

    async def _await(self, pending: Pending, end: float, call: str) -> bool:
        if self._has_come(pending, call):
            return True  # without taking more of a stream
        return await in_process(self._pid, call, "client", self._await_here, pending, end, call)

    async def _await_here(self, pending: Pending, end: float, call: str) -> bool:
        waiter = AnswerWaiter(self._awaiting, pending)
        try:
            waiter.enter()
            while not waiter.takes():
                if self._has_come(pending, call):
                    return True
                left = end - time.monotonic()
                if left <= 0:
                    return False
                await waiter.sleep(left)
            return await self._await_taking(pending, end, call)
        finally:
            surely(waiter.leave)

    async def _await_taking(self, pending: Pending, end: float, call: str) -> bool:
        """Wait for an answer, and take those of all requests."""
        while not self._has_come(pending, call):
            with self._answers._task() as sleeper:
                try:
                    self._take_answers()
                except ValueError:
                    self._check(call)  # another thread has closed it
                    raise
                if pending._is_answered():
                    return True
                left = end - time.monotonic()
                if left <= 0:
                    return False
                if not self._closed:
                    await sleeper.sleep(min(left, self._under_way.until_lost()))
        return True

    def _late(self, call: str, why: str = "no answer of") -> TimeoutError:
        try:
            servers = sum(entry.data.get("role") == "server" for entry in self._named.entries())
        except NdError as exc:
            pass_on(exc)
            self._check(call)  # closed meanwhile
            raise
        there = {0: "no server is", 1: "1 server is"}.get(servers, f"{servers} servers are")
        return TimeoutError(f"{call}: the time-out ended; {why} {self.name!r}, {there} there")

    # -- the end --

    def fileno(self) -> int:
        """Return a descriptor that is readable when an answer may have come."""
        return descriptor_while_open(self._answers.fileno, self._check, "Client.fileno")

    def ready(self) -> bool:
        """Return whether an answer waits to be taken, or was taken for another call meanwhile."""
        self._check("Client.ready")
        came = bool(self._taken or self._answers.ready())
        if self._under_way.take_unseen() or came:
            return True
        if not self._begin():
            return False
        try:
            return self._find_lost()
        finally:
            self._busy = 0
            self._end()

    @property
    def _bell(self) -> Bell | None:
        return self._answers._bell

    def _leave(self) -> None:
        self._unsent.close()
        self._answers._core.end_streams()  # also of requests that the program has dropped
        clients_here.discard(self._answers._core)
        self._answers.close()
        self._requests.close()

    def __repr__(self) -> str:
        under_way = sum(not each._over for each in self._known())
        state = "closed" if self._closed else f"{under_way} requests under way"
        return f"<Client {self.name!r} {state}>"
