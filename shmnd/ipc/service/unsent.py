# SPDX-License-Identifier: Apache-2.0
"""Requests of tasks for which there was no room: an event loop puts them, in their order.

A call that waited for room would stop the loop, which may be the one that the server runs in.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.held import Held
from shmnd.common.late import asyncio
from shmnd.ipc.errors import Closed
from shmnd.ipc.queue.waits import ITEM, ROOM, wait_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmnd.ipc.queue.queueing import Queue
    from shmnd.ipc.service.pending import Pending
    from shmnd.ipc.service.under_way import UnderWay

__all__ = ["Unsent"]

_PAUSE: Final = 0.5
"""Seconds after which it is tried again without a ring, and answers are taken before."""
_BRIEF: Final = 0.05
"""Seconds of a thread's first wait, for room alone: then it waits for answers as well."""
_STEP: Final = 0.0002
"""Seconds until another process, which is between two steps of a get, is asked again."""


class Unsent:
    """The requests of one client that wait for room, packed as they were when they were sent."""

    def __init__(self, requests: Queue, answers: Queue, under_way: UnderWay) -> None:
        self._requests: Final = requests
        self._answers: Final = answers
        self._under_way: Final = under_way
        self._waiting: Final[deque[tuple[Pending, list[int]]]] = deque()
        self._lock = threading.RLock()
        self.process: Final = requests._core.process
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: Any, end: float, noted: Any, take: Callable[[], None]) -> None:
        """Put a request at `end` at the latest, else Full. `take` takes the answers of its client.

        Servers of streams wait until they are read, and take no request meanwhile.
        """
        wait = _BRIEF
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                self._requests._put_noted(item, True, min(left, wait), noted, self.process)
                return
            except queue.Full:
                if left <= wait:
                    raise
            take()
            wait = _STEP
            self._await_room(left - wait)

    def _await_room(self, left: float) -> None:
        """Wait until there is room, or an answer to be taken."""
        if self._requests._core.full():
            wait_at((self._requests, ROOM, None), (self._answers, ITEM, None), left=left)

    async def aput(self, item: Any, timeout: float | None, noted: Any, pid: int) -> bool:
        """Put a request as `put` does, and let other tasks run meanwhile."""
        is_last = timeout is not None and timeout <= _PAUSE
        put = partial(self._requests._put_noted, item, False, None, noted, self.process)
        try:
            await self._requests._put_in_loop(put, timeout if is_last else _PAUSE, pid)
        except queue.Full:
            if is_last:
                raise
            return False
        return True

    def send(self, pending: Pending, item: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Put a request, or have the loop put it when there is room."""
        box = [self._requests._core.pack(item)]
        pending._unsent = True
        self._waiting.append((pending, box))
        self._put_some()
        if self._waiting and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._put_all())

    def send_now(self, pending: Pending, end: float) -> None:
        """Wait for the room of a request in this thread, which may be that of the loop."""
        self._put_some()
        while pending._unsent and self._is_here() and (left := end - time.monotonic()) > 0:
            if self._requests._core.full():
                self._await_room(left)
                self._take_answers_of(pending)
            else:
                time.sleep(min(left, _STEP))
            self._put_some()

    def _take_answers_of(self, pending: Pending) -> None:
        try:
            pending._client._take_answers(lost=False)
        except ValueError:
            if not self._requests._closed:  # by another thread, which has ended the request
                raise

    def _is_here(self) -> bool:
        """Return whether this is the process of the client: a child has only copies."""
        return self._requests._core.process == self.process

    def _put_some(self) -> None:
        """Put the requests that there is room for; in a child, none of its parent."""
        if not self._is_here():
            return
        core, born = self._requests._core, self.process
        with Held(self._lock):
            while self._waiting and not self._requests._closed:
                pending, box = self._waiting[0]  # an empty one: put by a call that was interrupted
                if box and pending._over:  # a stream that was closed before
                    core.drop(box, born)
                elif box and not core.push(box, True, self._under_way.entry_of(pending), born):
                    return
                pending._unsent = False
                self._waiting.popleft()

    async def _put_all(self) -> None:
        try:
            while self._waiting and not self._requests._closed and self._is_here():
                self._put_some()
                if self._waiting and self._requests._core.full():
                    await self._requests._await_long(ROOM, _PAUSE)
                    self._take_of_first()
                elif self._waiting:
                    await asyncio.sleep(_STEP)
        finally:
            self._end(
                "the event loop that was to send the request has ended; read what it sends in that"
                " loop, or pass a timeout, which waits for room"
            )

    def _take_of_first(self) -> None:
        """Take the answers of the client of the first waiting request, if the queue has no room."""
        if self._waiting and self._requests._core.full():
            self._waiting[0][0]._client._take_answers(lost=False)

    def _end(self, why: str, kind: type[RuntimeError] = RuntimeError) -> None:
        """End the requests that are not sent; their memory is that of the parent of a child."""
        if not self._is_here():
            self._lock = threading.RLock()  # another thread of the parent may have had it
        with Held(self._lock):
            while self._waiting:
                pending, box = self._waiting[0]
                if box and not self._requests._closed:
                    self._requests._core.drop(box, self.process)
                pending._failure = kind(f"Client.send: {why}")
                pending._over, pending._unsent = True, False
                for each in tuple(pending._waiters):
                    each.wake()
                if self._waiting and self._waiting[0][0] is pending:
                    self._waiting.popleft()  # last: what a handler interrupts is called again

    def close(self) -> None:
        """Send no more, before the queue is closed."""
        self._end("the client was closed before there was room for the request", Closed)
