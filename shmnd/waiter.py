# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another process announces by a ring: an extension, for libraries on top.

A library that shares memory with other processes polls that memory for what it waits for. A
`Waiter` adds the sleep: it sleeps in the kernel, in an event loop or on a descriptor until there is
a reason to poll again, which is a ring (`Neighbour.ring`), the death of a process, or the broker.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, TypeVar

from shmnd.common.arguments import seconds
from shmnd.common.closing import Closing
from shmnd.common.interruption import pass_on
from shmnd.common.late import asyncio
from shmnd.common.weak import Living, without_owner
from shmnd.runtime.awaiting.resuming import UntilWoken
from shmnd.runtime.waiting import Readiness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmnd.adapter import Adapter
    from shmnd.runtime.progress import ProgressEngine

__all__ = ["Attendant", "Waiter", "WaiterGroup"]

_T = TypeVar("_T")


class Waiter(Closing):
    """Waits until `ready` returns true, for any number of threads, tasks and descriptors.

    `ready` is called at every poll, by any thread: it only reads, and never waits. `arm(True)` asks
    the other processes to ring this one when something changes, once or more often; it is called
    again before each sleep, and a poll follows it, so that a ring in between is found. After
    `arm(False)` they need not ring any more. A method is held without its object.
    """

    def __init__(
        self,
        adapter: Adapter,
        ready: Callable[[], bool],
        arm: Callable[[bool], None] = lambda on: None,
    ) -> None:
        adapter._check_open("Waiter")
        self._set_up(adapter._engine, without_owner(ready), without_owner(arm))

    def _set_up(
        self, engine: ProgressEngine, ready: Callable[[], object], arm: Callable[[bool], object]
    ) -> None:
        self._engine = engine
        self._ready = ready
        self._arm = arm
        self._sleepers = 0
        self._ticked = 0  # those among them that every poll of the process checks
        self._tasks: list[Callable[[], None]] = []
        # By event loop: tasks of which one takes what makes it ready, and wakes at a time.
        self._lines: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
        self._readiness: Readiness | None = None
        self._groups: Living[WaiterGroup] | None = None  # that it is in
        self._closed = self._ended = False

    # -- threads --

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is ready; return False when `timeout` seconds end first.

        Ctrl-C interrupts the wait.
        """
        if timeout is not None:
            timeout = seconds("Waiter.wait", 1, "timeout", timeout)
        if self._poll():
            return True
        if timeout is not None and timeout <= 0:
            self._engine.progress()
            return self._poll()
        self._begin()
        try:
            return bool(self._engine.wait(self._poll_armed, timeout))
        finally:
            self._end()

    def sleep(self, poll: Callable[[], _T], timeout: float | None = None) -> _T | bool:
        """Sleep until `poll` returns a true value, and return that value; False when the time ends.

        `poll` is called in place of `ready` and `arm`: it polls, arms, and polls once more.
        """
        self._sleepers += 1
        try:
            found: _T | bool = self._engine.wait(poll, timeout)
            return found
        finally:
            self._sleepers -= 1

    # -- event loops --

    async def wait_in_loop(self, timeout: float | None = None) -> bool:
        """Wait as `wait` does, and let other tasks run meanwhile."""
        if timeout is not None:
            timeout = seconds("Waiter.wait_in_loop", 1, "timeout", timeout)
        return await self._within(timeout, self._tasks)

    async def _wait_in_line(self, timeout: float | None) -> bool:
        """Wait as `wait_in_loop` does, in a queue of the loop's tasks: one of them wakes at a time.

        The caller calls `_wake_next` when it has taken what it waited for, or gives up.
        """
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(loop, [])
        try:
            return await self._within(timeout, line)
        finally:
            if not line and self._lines.get(loop) is line:
                del self._lines[loop]

    def _wake_next(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Wake the next task of a line that a task has left, if this waiter is ready for it.

        Without a loop the task has not slept. The collector may end a task while its
        loop does not run.
        """
        line = self._lines.get(loop) if loop is not None and not loop.is_closed() else None
        if not line:
            return
        there = True  # also where a poll raises
        try:
            there = self._poll_armed()
        finally:
            for wake in line[:1] if there else ():
                wake()

    async def _within(self, timeout: float | None, tasks: list[Callable[[], None]]) -> bool:
        if timeout is None:
            await self._until_ready(tasks)
            return True
        try:
            async with asyncio.timeout(timeout):
                await self._until_ready(tasks)
        except TimeoutError as exc:
            pass_on(exc)
            return self._poll()
        return True

    async def _until_ready(self, tasks: list[Callable[[], None]]) -> None:
        while not self._poll():
            self._engine.check("Waiter.wait_in_loop")
            self._begin(ticked=True)
            try:
                await UntilWoken(self._engine, tasks, self._poll_armed)
            finally:
                self._end(ticked=True)

    @contextlib.contextmanager
    def resolving(self, future: asyncio.Future[None]) -> Iterator[None]:
        """Resolve a future of the running loop as soon as it is ready, while the block runs.

        A task that awaits the future waits for this and for whatever else resolves it. No
        descriptor is needed: all waiters of a process share the one that its loop polls.
        """
        loop = future.get_loop()
        loops, request_progress = self._engine.loops, self._engine.request_progress
        wake = functools.partial(loops.resolve, loop, future)

        self._engine.check("Waiter.wait_in_loop")
        loops.begin(loop, wake)
        self._tasks.append(wake)
        self._begin(ticked=True)
        try:
            request_progress.begin(wake)
            if self._poll_armed() and not future.done():
                future.set_result(None)
            yield
        finally:
            self._tasks.remove(wake)
            self._end(ticked=True)
            request_progress.end(wake)
            loops.end(loop, wake)

    # -- descriptors --

    def fileno(self) -> int:
        """Return a descriptor that is readable when it may be ready, for `select` and the like.

        A waiter that finds it readable polls, and calls `rest` when there was nothing.
        """
        self._require_open()
        readiness = self._readiness  # another thread may close it from here on
        if readiness is None:
            self._engine.check("Waiter.fileno")
            readiness = self._readiness = Readiness(self._engine, "Waiter.fileno")
            self._begin(ticked=True)
        try:
            number = readiness.fileno()
            self._poll_for_descriptor()
        finally:
            if self._closed:  # by another thread, which did not find all of it
                readiness.close()
                self._release()
        self._require_open()
        return number

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("Waiter.fileno: the waiter is closed")

    def include(self, descriptor: int) -> None:
        """Make `fileno()` readable also while another descriptor is, until that is closed."""
        self.fileno()
        readiness = self._readiness
        if readiness is not None:  # else another thread has just closed it
            readiness.include(descriptor)

    def rest(self) -> None:
        """Take the rings after a poll that found nothing, and arm the descriptor for the next."""
        self._engine.progress()
        if self._readiness is not None:
            self._poll_for_descriptor()

    def _poll_for_descriptor(self) -> None:
        readiness = self._readiness
        if readiness is not None:
            readiness.clear()
            if self._poll_armed():
                readiness.set()

    # -- what all of them do --

    def wake(self) -> None:
        """Let this process poll: something has changed here that its threads wait for."""
        self._engine.ring()

    @property
    def waited_for(self) -> bool:
        """Whether a thread or a task sleeps for it, or a program has its descriptor.

        It counts as waited for, too, while that holds for a group in which it is.
        """
        if self._sleepers > 0 or self._groups is None:
            return self._sleepers > 0
        return any(each._sleepers > 0 for each in self._groups.snapshot())

    def _poll(self) -> bool:
        return self._closed or self._ready() is not False

    def _poll_armed(self) -> bool:
        if self._poll():
            return True
        self._arm(True)
        return self._poll()

    def _begin(self, ticked: bool = False) -> None:
        """Count one more sleeper; a thread polls by itself, a task or a descriptor is `ticked`."""
        self._sleepers += 1
        self._ticked += ticked
        if ticked and self._ticked == 1:
            self._engine.pending_operations.add(self)

    def _end(self, ticked: bool = False) -> None:
        self._sleepers -= 1
        self._ticked -= ticked
        if ticked and self._ticked == 0:
            self._engine.pending_operations.remove(self)
        if self._sleepers == 0:
            self._arm(False)

    def _tick(self) -> None:
        """Poll for tasks and descriptors; the progress engine calls it after every event."""
        if not (self._tasks or self._lines or self._readiness) or not self._poll_armed():
            return
        firsts = [wake for line in list(self._lines.values()) for wake in line[:1]]
        for wake in [*self._tasks, *firsts]:
            wake()
        readiness = self._readiness  # another thread may close it
        if readiness is not None:
            readiness.set()

    def close(self) -> None:
        """End every wait: a waiter finds it ready. Harmless twice."""
        if self._ended:
            return
        self._closed = True
        self._release()
        self._ended = True  # last: an interrupted close is called again

    def _release(self) -> None:
        """End what there is by now. Harmless twice."""
        self._engine.pending_operations.remove(self)
        for wake in [*self._tasks, *itertools.chain(*self._lines.values())]:
            wake()
        readiness = self._readiness  # another thread may close it, too
        if readiness is not None:
            readiness.close()
            self._readiness = None
        self._engine.news()


class WaiterGroup(Waiter):
    """Ready when any of its waiters is: one descriptor for all of them, which may come and go.

    The kernel bounds how many epolls a descriptor is in, so each waiter cannot have its own. The
    waiters of a group belong to one namespace.
    """

    def __init__(self, first: Waiter) -> None:
        self._members: list[Waiter] = []
        self._set_up(first._engine, without_owner(self._any_ready), without_owner(self._arm_all))
        self.add(first)

    def add(self, waiter: Waiter) -> bool:
        """Add a waiter; return False for a waiter of another namespace, which is not added."""
        if waiter._engine is not self._engine:
            return False
        self._members.append(waiter)
        if waiter._groups is None:
            waiter._groups = Living()
        waiter._groups.add(self)
        self.wake()
        return True

    def remove(self, waiter: Waiter) -> bool:
        """Remove a waiter; return whether it was the last one, which closes the group."""
        if waiter in self._members:
            self._members.remove(waiter)
            if waiter._groups is not None:
                waiter._groups.discard(self)
        if not self._members:
            self.close()
        return not self._members

    def _any_ready(self) -> bool:
        return any(each._poll() for each in list(self._members))

    def _arm_all(self, on: bool) -> None:
        if on:  # otherwise, others may sleep for one of them
            for each in list(self._members):
                each._arm(True)


class Attendant(Closing):
    """Calls `poll` once after each `ask`, at the next poll of this process, in any thread.

    `poll` must not wait for other processes; it may ask the broker. A method is held without its
    object.
    """

    def __init__(self, adapter: Adapter, poll: Callable[[], None]) -> None:
        adapter._check_open("Attendant")
        self._engine = adapter._engine
        self._poll: Callable[[], object] = without_owner(poll)
        self._closed = False

    def ask(self) -> None:
        """Let `poll` be called, waking a thread that sleeps. Never waits; safe in a finaliser."""
        if not self._closed:
            self._engine.pending_operations.poll_soon(self)
            self._engine.ring()

    def _tick(self) -> None:
        """Call `poll`; the progress engine calls this at the next poll."""
        if not self._closed:
            self._poll()

    def close(self) -> None:
        """Call it no more. Harmless twice."""
        self._closed = True
