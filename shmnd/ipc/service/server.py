# SPDX-License-Identifier: Apache-2.0
"""Servers: they take requests of a name and answer them.

Requests lie in one queue of the name, so several servers share the work; answers go to a queue of
each client. Both are the queues of `ipc.Queue`: a process may die at any instant.
"""

from __future__ import annotations

import inspect
import os
import queue
import time
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from shmnd.common.deadline import end_of
from shmnd.common.interruption import is_interruption, pass_on
from shmnd.common.late import asyncio, running_loop
from shmnd.ipc.common.closed import descriptor_while_open
from shmnd.ipc.common.processes import own_process
from shmnd.ipc.common.ringing import Bell
from shmnd.ipc.common.sleeping_tasks import POLL
from shmnd.ipc.errors import Closed, require_process
from shmnd.ipc.queue.queueing import Queue
from shmnd.ipc.service.asking import KnownClient, open_answers, origin_of
from shmnd.ipc.service.request import Request, UnreadableRequest, fail, fail_unless_fit
from shmnd.ipc.service.request_loop import RequestLoop
from shmnd.ipc.service.service_user import ServiceUser
from shmnd.ipc.service.turns import StreamTurns
from shmnd.status import NdMemoryError

__all__ = ["Request", "Server"]

Handler = Callable[["Request"], Any]


class Server(ServiceUser):
    """A server of a name. `request` and `response` are types as of topics; None takes any object.

    `buffer` is how many requests wait before clients do.
    """

    _title = "Server"

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
        self._seen_as = self._named.seen_as()
        self._clients: dict[tuple[int, int], KnownClient] = {}  # by the files of their answers
        self._closed = self._has_left = False

    # -- taking --

    def receive(self, timeout: float | None = None) -> Request:
        """Take the next request; TimeoutError when none comes in time."""
        try:
            return self._received(timeout)
        except UnreadableRequest as exc:
            raise exc.args[0] from None

    def _received(self, timeout: float | None) -> Request:
        end = end_of(timeout, call := "Server.receive")
        box: list[Any] = []
        try:
            while True:
                self._check(call)
                left = end - time.monotonic()
                try:
                    self._requests._get_into(
                        box, left > 0, None if timeout is None else max(0.0, left)
                    )
                except queue.Empty:
                    raise self._late(call) from None
                except ValueError:
                    self._check(call)  # closed by another thread
                    raise
                request = self._read(box, call)
                if request is not None:
                    return request
        except BaseException as exc:
            self._keep(box)
            require_process(self._pid, call, "server", exc)
            raise

    async def areceive(self, timeout: float | None = None) -> Request:
        """Take the next request as `receive` does, and let other tasks run meanwhile."""
        try:
            return await self._areceived(timeout)
        except UnreadableRequest as exc:
            raise exc.args[0] from None

    async def _areceived(self, timeout: float | None) -> Request:
        call = "Server.areceive"
        end = end_of(timeout, call)
        box: list[Any] = []
        try:
            while True:
                self._check(call)
                try:
                    left = None if timeout is None else end - time.monotonic()
                    box += (await self._requests.aget(left),)
                except queue.Empty:
                    raise self._late(call) from None
                except ValueError:
                    self._check(call)
                    raise
                request = self._read(box, call)
                if request is not None:
                    return request
        except BaseException as exc:
            self._keep(box)
            require_process(self._pid, call, "server", exc)
            raise

    def _late(self, call: str) -> TimeoutError:
        return TimeoutError(f"{call}: the time-out ended; no request for {self.name!r} came")

    def _keep(self, box: list[Any]) -> None:
        """Keep a request that was taken for a call which ends with an exception."""
        if box and self._pid == os.getpid():  # not in a child that was forked within the call
            self._requests._core.keep(box[0])

    def _read(self, box: list[Any], call: str) -> Request | None:
        """Return the request of an item and empty the box; a fault ends that request alone."""
        try:
            return self._request_of(box, call)
        except UnreadableRequest:
            box.clear()
            raise
        except Exception as exc:
            if isinstance(exc, NdMemoryError) or is_interruption(exc):
                raise  # no descriptor is free for its answers; or a handler of a signal raised
            box.clear()
            raise UnreadableRequest(exc) from exc

    def _request_of(self, box: list[Any], call: str) -> Request | None:
        """Return the request of an item; None when its client has gone.

        A handler of a signal may raise behind each call: the item is in the box until the last one.
        A child that it forks says nothing to the client, which its parent answers.
        """
        request = None
        try:
            if (found := self._found_in(box[0], call)) is not None:
                request = Request(self, None, *found[1:])
                request._answers = found[0]  # one that is dropped before answers nothing
                ended = request._is_ended()
                require_process(self._pid, call, "server")
                if ended:
                    request._finish()  # its client waits for nothing any more
                    request = None
                elif fail_unless_fit(request, self.request, self._pid, call):
                    request = None
            require_process(self._pid, call, "server")
            del box[0]
            return request
        except BaseException:
            if request is not None:
                request._answers = None  # it is made again of the item in the box
            raise

    def _found_in(self, item: Any, call: str) -> tuple[Queue, int, tuple[int, int], Any] | None:
        """Return the answers, the number, the client and the value of a request."""
        if (origin := origin_of(item)) is None:
            return None
        process, fd, key, number, member = origin
        client = self._clients.get(key)
        if client is None:
            for gone in [each for each, other in self._clients.items() if not other.lives()]:
                del self._clients[gone]
            opened = open_answers(process, fd, key, self.name)
            if opened is None:
                return None
            client = self._clients[key] = KnownClient(opened, member, process)
        elif not client.lives(member, process):
            return None  # it has died or was closed since it asked
        answers = client.answers
        claim = answers._core.me, *own_process(), self._seen_as
        require_process(self._pid, call, "server")
        answers._put_or_drop((number, "taken", 0, os.getpid(), claim), wake=False)
        return answers, number, (member, client.pid), item[-1]

    def __iter__(self) -> RequestLoop:
        """Return requests as they come, until the server is closed.

        A request that cannot be read is left out with a RuntimeWarning; its client gets an error.
        """
        return RequestLoop(self)

    def __aiter__(self) -> RequestLoop:
        """Return requests as they come, until the server is closed."""
        return RequestLoop(self)

    def _next(self, timeout: float | None, call: str) -> Request | None:
        """Return a request; None when none comes in time or can be read, or after a close."""
        try:
            return self._received(timeout)
        except (Closed, TimeoutError) as exc:
            pass_on(exc)
            require_process(self._pid, call, "server")
            return None
        except NdMemoryError:
            time.sleep(POLL)  # until there is a descriptor, or memory
            return None
        except UnreadableRequest as exc:
            self._warn(exc.args[0])
            return None

    def _warn(self, exc: Exception) -> None:
        if not self._closed:
            text = f"Server: a request for {self.name!r} could not be read: {exc!r}"
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    async def _anext(self) -> Request | None:
        """Return a request; None when the server was closed."""
        while not self._closed:
            try:
                return await self._areceived(None)
            except Closed:
                require_process(self._pid, "Server", "server")
                return None
            except NdMemoryError:
                await asyncio.sleep(POLL)  # until there is a descriptor, or memory
            except UnreadableRequest as exc:
                self._warn(exc.args[0])
        return None

    # -- handling --

    def serve(self, handler: Handler) -> Awaitable[None] | None:
        """Answer requests by what `handler(request)` returns, until the server is closed.

        A generator is a stream; an exception goes to the client. With a coroutine function the
        result is to be awaited, and any number of requests are under way at once.
        """
        if not callable(handler):
            raise TypeError(
                f"Server.serve: {handler!r} cannot be called; pass a function of a request"
            )
        self._check("Server.serve")
        called = getattr(handler, "__call__", handler)  # noqa: B004
        for each in (handler, called):
            if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
                return self._aserve(handler)
        turns = StreamTurns()
        try:
            while not self._closed:
                self._answer_next(handler, turns)
            turns.finish()
        except BaseException as exc:
            turns.end(exc)
            raise
        return None

    def _answer_next(self, handler: Handler, turns: StreamTurns) -> None:
        """Answer the next request, and have each stream under way give a value."""
        timeout: float | None = None
        if turns:
            going = turns.take()
            timeout = 0.0
            if self._requests.empty():
                if going:
                    return
                timeout = turns.rest(self._requests)
        request = self._next(timeout, "Server.serve")
        if request is None:
            return
        try:
            result: Any = handler(request)
            if inspect.isgenerator(result):
                turns.begin(request, result)
            elif not request.answered:
                request.respond(result)
        except BaseException as exc:
            fail(request, exc)
            if not isinstance(exc, Exception):
                raise

    async def _aserve(self, handler: Handler) -> None:
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for request in self:
                task = asyncio.create_task(self._handle(handler, request))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                del request, task  # not held while it waits for the next one
        finally:
            for task in list(tasks):
                task.cancel()

    async def _handle(self, handler: Handler, request: Request) -> None:
        try:
            result = handler(request)
            if hasattr(result, "__aiter__"):
                await request.astream(result)
                return
            result = await result
            if request._rest is not None:
                await request._rest  # what ends this task ends its stream
            if inspect.isgenerator(result) or inspect.isasyncgen(result):
                await request.astream(result)
            elif not request.answered:
                request.respond(result)
        except BaseException as exc:
            fail(request, exc)  # also a cancelled one: its client waits
            if not isinstance(exc, Exception):
                if request._rest is not None:
                    request._rest.cancel()  # the handler has not come to its end
                _leave_report_to_loop(exc)
                raise

    # -- descriptors and the end --

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be a request."""
        return descriptor_while_open(self._requests.fileno, self._check, "Server.fileno")

    def ready(self) -> bool:
        """Return whether a request waits."""
        self._check("Server.ready")
        return self._requests.ready()

    @property
    def _bell(self) -> Bell | None:
        return self._requests._bell

    def _leave(self) -> None:
        self._requests.close()
        self._clients.clear()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._requests.qsize()} requests wait"
        return f"<Server {self.name!r} {state}>"


def _leave_report_to_loop(exc: BaseException) -> None:
    """Keep the current task from printing an exception that ends the event loop."""
    if isinstance(exc, (KeyboardInterrupt, SystemExit)) and running_loop() is not None:
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
