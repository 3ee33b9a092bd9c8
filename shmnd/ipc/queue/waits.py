# SPDX-License-Identifier: Apache-2.0
"""This process's part in a queue, and long waits at it."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from shmnd.common.deadline import end_after
from shmnd.common.held import Held
from shmnd.common.late import asyncio
from shmnd.ipc.common.ringing import Bell, sleeper_at
from shmnd.ipc.common.sleeping_tasks import POLL, Poller, TaskSleeper, task_at
from shmnd.status import NdMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmnd.ipc.queue.queue_core import QueueCore

__all__ = ["DONE", "ITEM", "ROOM", "Waits", "end_of_wait", "ns_of", "wait_at"]

ITEM: Final = 0
ROOM: Final = 1
DONE: Final = 2
_bells: weakref.WeakValueDictionary[tuple[int, int], Bell] = weakref.WeakValueDictionary()
"""One for each part, whose page has one address."""
_users: weakref.WeakKeyDictionary[Bell, weakref.WeakSet[Waits]] = weakref.WeakKeyDictionary()
"""The open queues that use a bell: several objects of a program may be one part."""
_bells_lock = threading.RLock()  # a queue that is dropped inside leaves its bell


def _forked() -> None:
    global _bells_lock
    _bells_lock = threading.RLock()  # another thread may have had it


os.register_at_fork(after_in_child=_forked)


class Waits:
    """What a queue waits by: its part, and its bell."""

    _core: QueueCore
    _closed: bool
    _bell: Bell | None
    _is_armed = False  # at its end, until others ring its bell no more
    _also: QueueCore | None  # another queue whose members matter to its waits

    def _wait_long(self, what: int, left: float, came: Callable[[], bool] | None = None) -> None:
        """Sleep until a change, or the death of a process that was to bring or to announce one."""
        wait_at((self, what, came), left=left)

    async def _await_long(
        self, what: int, left: float, came: Callable[[], bool] | None = None
    ) -> None:
        """Sleep as `_wait_long` does, and let other tasks run meanwhile."""
        try:
            bell = self._bell_of()
        except NdMemoryError:
            self._core.reap()
            await asyncio.sleep(min(left, POLL))
            return
        kind = what if came is None else None
        with bell.task(kind) as sleeper:
            there = True  # also where it raises: the rings were taken
            try:
                bell.drain(kind)
                there = self._arm(bell, what, came)
            finally:
                if there and kind is not None:
                    bell.ring()  # the lines of other loops were not woken
            if not there and not self._closed:
                await sleeper.sleep(left)

    def _task(
        self, kind: int | None = None
    ) -> contextlib.AbstractContextManager[TaskSleeper | Poller]:
        """Return a context of a task that the next item wakes, or of one of a line of them."""
        return task_at(self._bell_of, kind)

    def _wake_next(
        self, loop: asyncio.AbstractEventLoop | None, what: int, ready: Callable[[], bool]
    ) -> None:
        """Wake the next task of a line that a task has left, if `ready` returns true.

        Without a loop the task has not slept, and was in no line.
        """
        bell = self._bell
        if bell is not None and loop is not None:
            bell.wake_next(loop, what, ready)

    def _arm(self, bell: Bell, what: int, came: Callable[[], bool] | None = None) -> bool:
        """Have others ring the bell for a change; return whether there is one already."""
        try:
            return self._arm_and_check(bell, what, came)
        finally:
            if self._closed:  # by another thread, which disarmed it before
                self._leave_bell(armed=True)

    def _arm_and_check(self, bell: Bell, what: int, came: Callable[[], bool] | None) -> bool:
        core = self._core
        if core.arm_descriptor(bell.address, what) and came is None:
            return True
        pids = core.pids()
        if self._also is not None:
            pids |= self._also.pids()
        bell.watch(pids)
        # Once more: one that died before it was watched may have brought it, or its death does.
        if what != ITEM:
            core.reap()
        there = core.arm_descriptor(bell.address, what)
        return there if came is None else came()

    def _bell_of(self) -> Bell:
        bell = self._bell
        if bell is None or bell.fd < 0:  # a child was forked off
            with Held(_bells_lock):
                key = os.getpid(), id(self._core)
                bell = _bells.get(key)
                if bell is None or bell.fd < 0:
                    made = Bell()
                    bell = _bells.get(key)  # a handler of a signal may have made one meanwhile
                    if bell is None or bell.fd < 0:
                        bell = _bells[key] = made
                self._bell = bell  # first: a close after an exception leaves it
                _users.setdefault(bell, weakref.WeakSet()).add(self)
            try:
                self._calm(bell)
            finally:
                if self._closed:  # by another thread, which did not find the bell
                    self._leave_bell(armed=True)
        return bell

    def _calm(self, bell: Bell) -> None:
        """Take the rings and arm the bell for the next item; ring it where there is one."""
        there = True  # also where it raises: the rings were taken
        try:
            bell.drain(ITEM)
            there = self._arm(bell, ITEM)
        finally:
            if there:
                bell.ring()

    def _leave_bell(self, *, armed: bool = False) -> None:
        """Leave the bell: wake its sleepers, and disarm the descriptor after the last user.

        A call of another thread may have the bell still: it disarms what it has `armed` meanwhile.
        """
        self._is_armed = self._is_armed or armed
        bell = self._bell
        if bell is not None:
            self._is_armed = True
            bell.wake_all()
            self._bell = None
        if self._is_armed:
            with Held(_bells_lock):  # one that begins to use the bell arms it behind this
                bell = _bells.get((os.getpid(), id(self._core)))
                users = None if bell is None else _users.get(bell)
                if users is not None:
                    users.discard(self)
                if not users:
                    self._core.disarm_descriptor()
            self._is_armed = False  # last: an interrupted end is continued


def wait_at(*waits: tuple[Waits, int, Callable[[], bool] | None], left: float) -> None:
    """Sleep until a change at one of several queues, or the death of a process at one of them.

    Each comes with what the caller waits for there, and a function that returns whether there is
    that, which a death may bring. A queue that was closed has no bell, and none of these sleeps
    here then.
    """
    queues = [queue for queue, *_ in waits]
    if any(queue._closed for queue in queues):
        return
    try:
        bells = [queue._bell_of() for queue in queues]
    except NdMemoryError:
        for queue in queues:
            queue._core.reap()
        time.sleep(min(left, POLL))
        return
    with sleeper_at(*bells) as sleeper:
        for bell in bells:
            bell.drain()
        # All of them: one that is not armed would not ring.
        there = [
            queue._arm(bell, what, came)
            for (queue, what, came), bell in zip(waits, bells, strict=True)
        ]
        if not any(there) and not any(queue._closed for queue in queues):
            sleeper.sleep(left)


def end_of_wait(timeout: float | None) -> float:
    """Return when a wait ends. As in multiprocessing, one of less than nothing ends at once."""
    try:
        end = end_after(timeout)
        is_number = not math.isnan(end)
    except TypeError:
        raise TypeError(
            f"Queue: timeout {timeout!r} is not a number of seconds such as 0.5"
        ) from None
    if not is_number:
        raise ValueError(f"Queue: timeout {timeout!r} is not a number of seconds such as 0.5")
    return end


def ns_of(seconds: float) -> int:
    """Return a time as the core takes it: -1 for no limit."""
    return -1 if seconds > 1e9 else int(seconds * 1e9)
