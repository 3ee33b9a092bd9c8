# SPDX-License-Identifier: Apache-2.0
"""Queues between processes, with the names and the behaviour of `multiprocessing.Queue`.

Items lie in memory that all processes of a queue share; a put copies the object there, and a get
takes it from there. There is no thread, but where a queue without a limit holds more than
`_LONGEST` items: further ones then stay with their process until there is room (`feeder`).
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import time
from collections.abc import MutableMapping
from functools import partial
from multiprocessing import context, util
from multiprocessing.reduction import DupFd
from typing import TYPE_CHECKING, Any, Final, Self

from shmnd.common.arguments import integer
from shmnd.common.deadline import end_after
from shmnd.common.late import asyncio
from shmnd.common.native import direct_calls
from shmnd.common.owned import Owned
from shmnd.ipc.common.closed import announce_closed, descriptor_while_open
from shmnd.ipc.common.ringing import PAUSE
from shmnd.ipc.errors import require_caller
from shmnd.ipc.queue.feeder import Feeder
from shmnd.ipc.queue.parts import core_here, core_of, new_core, taken_over
from shmnd.ipc.queue.queue_calls import QueueCalls
from shmnd.ipc.queue.queue_file import make_file
from shmnd.ipc.queue.waits import DONE, ITEM, ROOM, Waits, end_of_wait, ns_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmnd.ipc.naming.shared_name import Holder, SharedName
    from shmnd.ipc.queue.queue_core import QueueCore

__all__ = ["QUEUE", "JoinableQueue", "Queue"]

QUEUE: Final = "ipc.queue"
"""The kind of the records of processes that have one by name."""

Noted = tuple[MutableMapping[int, int], int]
"""In which dict, and under which key, the position of an item is entered."""
_LONGEST: Final = 1 << 16
"""Items that a queue without a limit holds in shared memory."""


@direct_calls
class Queue(QueueCalls, Waits):
    """A queue of objects for any number of processes: a drop-in for `multiprocessing.Queue`.

    It goes to a child process as an argument, or is opened by its `name`. `maxsize` is how many
    items it holds before `put` waits; 0 for no limit. A process may be killed at any instant: items
    that it has put stay, and those that it has not taken are for others.
    """

    def __init__(self, maxsize: int = 0, *, name: str | None = None, ctx: object = None) -> None:
        limit = max(0, self._checked_size(maxsize))
        self._named: SharedName | None = None
        if name is None:
            self._start(new_core(limit or _LONGEST, bool(limit)))
            return
        self._named = self._by_name(name)
        try:
            make = partial(make_file, limit or _LONGEST, bool(limit))
            self._start(core_of(self._named.holder(make, core_here, taken_over)))
        except BaseException:
            self._named.close()
            raise

    @classmethod
    def _checked_size(cls, maxsize: object) -> int:
        size = integer(maxsize)
        if size is None:
            named = f"; a name is passed as name={maxsize!r}" if isinstance(maxsize, str) else ""
            raise TypeError(
                f"{cls.__name__}: maxsize {maxsize!r} is not a whole number, which is how many "
                f"items it holds (0: no limit){named}"
            )
        return size

    @classmethod
    def of_file(cls, file: Holder) -> Self:
        """Return the queue of a descriptor, which it takes over, or of this process's part."""
        made = cls.__new__(cls)
        made._named = None
        made._start(core_of(file))
        return made

    def _start(self, core: QueueCore) -> None:
        self._core = core
        self._maxsize = self._core.slots if self._core.limited else 0
        self._reset()
        util.register_after_fork(self, Queue._reset)

    def _reset(self) -> None:
        """Reset to the state of a process that has put nothing, as in a child."""
        self._pid = os.getpid()
        self._closed = False
        self._feeder = Feeder(self._core)
        self._behind = self._feeder.items
        self._bell = None
        self._also = None

    def _require_open(self) -> None:
        if self._closed:  # be it by another thread, during a wait
            raise ValueError(f"Queue {self!r} is closed")

    # -- to other processes --

    def __getstate__(self) -> tuple[Any, ...]:
        context.assert_spawning(self)
        return DupFd(self._core.fd), self.name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        passed, name = state
        self._named = None
        self._start(core_of(Owned.of(passed.detach, heir=taken_over)))
        if name is not None:
            self._named = self._by_name(name)
            self._named.announce(self._core.fd)

    @classmethod
    def _by_name(cls, name: str) -> SharedName:
        from shmnd.ipc.naming.shared_name import SharedName

        return SharedName(cls.__name__, QUEUE, name, role="member")

    @property
    def name(self) -> str | None:
        """The name by which other processes open it."""
        return self._named.name if self._named else None

    # -- putting and getting --

    def _put_later(
        self,
        block_ref: int,
        block: bool,
        timeout: float | None,
        end: float | None,
        noted: Noted | None = None,
        born: int = 0,
    ) -> None:
        """Put a packed item for which there was no room, at `end` at the latest if that is given.

        It is where the call has waited before: another process took the room that it found. `born`
        is of the process that has packed it: a child that is forked meanwhile does not put it.
        """
        box = [block_ref]
        try:
            if self._maxsize:
                end = _deadline(block, timeout) if end is None else end
                self._push_in_time(box, end, noted, born)
            else:
                self._keep(box)
        except BaseException:
            if box:  # else the item is put, and its memory is the queue's
                self._core.drop(box, born)
            raise

    def _await_room(self, block: bool, timeout: float | None) -> float:
        """Wait until there is room; return when the time of the call ends. Full if it has ended."""
        deadline = _deadline(block, timeout)
        long = False
        while self._core.full():
            left = deadline - time.monotonic()
            if left <= 0:
                raise queue.Full
            self._wait_for_room(left, long)
            self._require_open()
            long = True
        return deadline

    def _wait_for_room(self, left: float, long: bool) -> None:
        """Wait once: a short time for a wake-up, or long, and for deaths as well."""
        if long and not self._closed:  # a feeder continues, and has no bell then
            self._wait_long(ROOM, left)
        else:
            self._core.wait_for_room(ns_of(left))

    def _push_in_time(
        self, box: list[int], deadline: float, noted: Noted | None, born: int
    ) -> None:
        long, pause = False, 0.0001
        while not self._core.push(box, True, noted, born):
            left = deadline - time.monotonic()
            if left <= 0:
                raise queue.Full
            if self._core.full():
                self._wait_for_room(left, long)
                self._require_open()
                long = True
            else:  # another process is between two steps, or stopped there
                time.sleep(min(left, pause))
                pause = min(2 * pause, PAUSE)

    @staticmethod
    def _check_timeout(timeout: float | None) -> None:
        """Raise if it is not a number, also where nothing waits for it."""
        end_of_wait(timeout)

    def _first_wait(self, timeout: float | None) -> int:
        """Return how long a get waits at first, in nanoseconds; `PAUSE` at most."""
        return ns_of(PAUSE if timeout is None else _short(timeout))

    def _end_of_wait(self, timeout: float | None) -> float:
        """Return when a get ends that has waited that long."""
        return end_after(None if timeout is None else timeout - PAUSE)

    def _await_item(self, end: float) -> bool:
        """Sleep until there may be an item; return False when the time of the wait has ended."""
        self._require_open()
        if (left := end - time.monotonic()) <= 0:
            return False
        self._wait_long(ITEM, left)
        return True

    def put_nowait(self, obj: object) -> None:
        """Put without waiting."""
        self.put(obj, False)

    def get_nowait(self) -> Any:
        """Get without waiting."""
        return self.get(False)

    def qsize(self) -> int:
        """Return how many items there are; a guess while others put and get."""
        return self._core.qsize() + len(self._behind)

    def empty(self) -> bool:
        """Return whether there is nothing to get now."""
        return self._core.empty()

    def full(self) -> bool:
        """Return whether a put would have to wait now."""
        return bool(self._maxsize) and self._core.full()

    @staticmethod
    def _on_queue_feeder_error(exc: Exception, obj: object) -> None:
        """Report an object that cannot be pickled. As in multiprocessing, for overriding."""
        import traceback

        traceback.print_exception(exc)

    def _put_or_drop(self, obj: object, wake: bool = True) -> bool:
        """Put without waiting; return False if there is no room."""
        return self._core.put_or_drop(obj, wake)

    def ready(self) -> bool:
        """Return whether there is an item to get."""
        if not self._core.empty():
            return True
        bell = self._bell
        if bell is not None and bell.fd >= 0:  # not that of the parent of a child
            self._calm(bell)
        return not self._core.empty()

    # -- more than there is room for --

    def _keep(self, box: list[int]) -> None:
        """Keep an item of a queue without a limit until there is room, and empty its box."""
        if self._pid != os.getpid():  # a child by os.fork
            closed = self._closed
            self._reset()
            self._closed = closed
        self._feeder.keep(box, self._wait_for_room)

    def close(self) -> None:
        """Put and get no more in this process. Items that were put stay for others."""
        self._closed = True
        if self._pid != os.getpid():
            return
        self._core.wake()
        self._leave_bell()
        announce_closed(self)
        if self._named is not None and not self._feeder.is_busy:
            self._named.close()

    def join_thread(self) -> None:
        """Wait, after `close()`, until everything that this process has put is sent."""
        assert self._closed, f"Queue {self!r} not closed"
        self._feeder.join()

    def cancel_join_thread(self) -> None:
        """End the process without waiting until everything that it has put is sent."""
        self._feeder.abandon_at_exit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        limit = f" of {self._maxsize}" if self._maxsize else ""
        state = "closed" if self._closed else f"{self.qsize()}{limit} items"
        return f"<{type(self).__name__}{name} {state}>"

    # -- descriptors and asyncio --

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be an item to get.

        It stays readable until a get finds nothing.
        """
        return descriptor_while_open(
            lambda: self._bell_of().fd, lambda _: self._require_open(), "Queue.fileno"
        )

    async def aget(self, timeout: float | None = None) -> Any:
        """Get as `get` does, and let other tasks run meanwhile."""
        pid, born = os.getpid(), self._core.process  # first: a handler may fork from here on
        deadline = _deadline(True, timeout)
        box: list[Any] = []
        loop = None  # in whose line it has waited
        try:
            while True:
                require_caller(pid, "Queue.aget")
                with contextlib.suppress(queue.Empty):
                    self._get_into(box, False)
                if box:
                    break
                if deadline <= time.monotonic():
                    raise queue.Empty
                loop = asyncio.get_running_loop()
                with self._task(ITEM) as sleeper:
                    if not self.ready() and not self._closed:
                        await sleeper.sleep(deadline - time.monotonic())
            self._wake_next(loop, ITEM, self.ready)
            require_caller(pid, "Queue.aget")
            return box[0]
        except BaseException as exc:
            require_caller(pid, "Queue.aget", exc)
            if box:
                self._core.keep(box[0], born)
            self._wake_next(loop, ITEM, self.ready)
            raise

    async def aput(self, obj: object, timeout: float | None = None) -> None:
        """Put as `put` does, and let other tasks run meanwhile."""
        pid = os.getpid()  # first: a handler may fork from here on
        await self._put_in_loop(partial(self.put, obj, False), timeout, pid)

    async def _put_in_loop(self, put: Callable[[], None], timeout: float | None, pid: int) -> None:
        deadline = _deadline(True, timeout)
        loop = None  # in whose line it has waited
        try:
            while True:
                with contextlib.suppress(queue.Full):
                    require_caller(pid, "Queue.aput")  # no call comes between this and the put
                    put()
                    break
                if deadline <= time.monotonic():
                    raise queue.Full
                loop = asyncio.get_running_loop()
                await self._await_long(ROOM, deadline - time.monotonic())
            self._wake_next(loop, ROOM, self._finds_room)
            require_caller(pid, "Queue.aput")
        except BaseException as exc:
            require_caller(pid, "Queue.aput", exc)
            self._wake_next(loop, ROOM, self._finds_room)
            raise

    def _finds_room(self) -> bool:
        """Return whether there is room; if not, be rung for it."""
        bell = self._bell
        return not self._core.full() or (bell is not None and self._arm(bell, ROOM))

    @property
    def _reader(self) -> Self:
        """What `multiprocessing.connection.wait` takes."""
        return self


@direct_calls
class JoinableQueue(Queue):
    """A queue that knows how many items are still worked on: `multiprocessing.JoinableQueue`.

    An item that a process took and died with counts as done.
    """

    def task_done(self) -> None:
        """Report that an item that was got is done; ValueError when reported too often."""
        if not self._core.task_done():
            raise ValueError("task_done() called too many times")

    def join(self) -> None:
        """Wait until every item that was put is done. It polls each 100 ms once it is closed."""
        while not self._core.join(ns_of(PAUSE)):
            self._wait_long(DONE, math.inf)


def _deadline(block: bool, timeout: float | None) -> float:
    return end_of_wait(timeout) if block else -math.inf


def _short(timeout: float) -> float:
    return max(0.0, min(timeout, PAUSE))
