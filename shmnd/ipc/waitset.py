# SPDX-License-Identifier: Apache-2.0
"""Waiting for many: subscribers, servers, clients, listeners, queues, readers, descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from typing import Any, Final

from shmnd.common.closing import Closing, surely
from shmnd.common.deadline import end_of
from shmnd.common.descriptors import EventCount, taking_from_the_system
from shmnd.common.exits import stay_at_exit
from shmnd.common.interruption import pass_on
from shmnd.common.late import asyncio
from shmnd.common.loops import Loop
from shmnd.common.owned import Owned
from shmnd.ipc.common.closed import observe
from shmnd.ipc.common.ringing import Bell
from shmnd.ipc.errors import Closed, in_process, require_process
from shmnd.runtime.awaiting.awaited import resolve
from shmnd.status import NdError, NdMemoryError
from shmnd.waiter import Waiter, WaiterGroup

__all__ = ["WaitSet"]

_MOST_MS: Final = 1 << 30
_EVENTS: Final = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
"""A descriptor that was closed is ready: using it raises at once."""


class _Waker:
    """A descriptor that ends the waits of the threads and tasks that have it."""

    def __init__(self) -> None:
        with taking_from_the_system("WaitSet"):
            self._event: Final = EventCount()  # closed when no wait has it any more
        self.fd: Final = self._event.fileno()
        self.taken = False

    def wake(self) -> None:
        self._event.add()

    def close(self) -> None:
        self._event.close()


class WaitSet(Closing):
    """A set of objects, of which `wait` returns those that have something.

    An object of `shmnd.ipc` is ready when taking from it would find something; a descriptor, or
    any object with a `fileno()`, when it is readable. A wait raises Closed for an object of
    `shmnd.ipc` that was closed, also by another thread while it sleeps. Other threads may add and
    remove objects while one waits.
    """

    def __init__(self, *objects: Any) -> None:
        self._objects: dict[int, Any] = {}
        self._closed = False
        self._waiters: dict[int, Waiter] = {}  # of the objects that have one, by their keys
        self._groups: list[WaiterGroup] = []
        self._waker = _Waker()
        self._has_left = False
        try:
            for each in objects:
                self.add(each)
        except BaseException:
            self.close()
            self._waker.close()  # no wait has it: the exception keeps this object
            raise

    def add(self, obj: Any) -> None:
        """Add an object or a descriptor. Harmless when it is there already."""
        self._check("WaitSet.add")
        if not (isinstance(obj, int) and not isinstance(obj, bool)) and not hasattr(obj, "fileno"):
            raise TypeError(
                f"WaitSet.add: {obj!r} has no fileno(); add an object of shmnd.ipc, a file, a "
                "socket or a descriptor"
            )
        key = id(obj) if not isinstance(obj, int) else ~obj
        if key in self._objects:
            return
        if hasattr(obj, "_waits_by"):
            waiter = self._waiters[key] = obj._waits_by()[0]
            if not any(group.add(waiter) for group in self._groups):
                self._groups.append(WaiterGroup(waiter))
        else:
            try:
                os.fstat(obj if isinstance(obj, int) else int(obj.fileno()))
            except OSError as exc:
                pass_on(exc)
                raise ValueError(
                    f"WaitSet.add: {obj!r} is not an open descriptor: {exc.strerror}"
                ) from None
        self._objects[key] = obj
        if _asked(obj) is not None:
            observe(obj, self)
        self._wake()

    def _wake(self) -> None:
        """Have the waits ask the objects again.

        A wait takes the waker before it asks: it has seen the change, or is woken.
        """
        if self._waker.taken:
            woken = self._waker
            try:
                with contextlib.suppress(NdMemoryError):  # the waits poll until one is free
                    self._waker = _Waker()
            finally:
                woken.wake()  # also where a handler of a signal raises: it is not found again

    def object_closed(self) -> None:
        """Wake the waits: an object of the set was closed, and they raise Closed."""
        self._wake()

    def remove(self, obj: Any) -> None:
        """Remove an object; KeyError when it is not there."""
        key = id(obj) if not isinstance(obj, int) else ~obj
        if key not in self._objects:
            raise KeyError(f"WaitSet.remove: {obj!r} was not added")
        del self._objects[key]
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            self._groups = [group for group in self._groups if not group.remove(waiter)]

    def _take_waker(self) -> _Waker:
        waker = self._waker
        waker.taken = True
        return waker if waker is self._waker else self._take_waker()

    def _every_descriptor(self) -> set[int]:
        """Return those to sleep at; a group has one for all objects that have waiters."""
        found = set()
        for group in self._groups:
            try:
                found.add(group.fileno())
            except (ValueError, NdError) as exc:
                if isinstance(exc, NdMemoryError):
                    raise
                # Another thread has just closed it, and the waker says so.
        return found | self._descriptors()

    def _descriptors(self) -> set[int]:
        """Return the descriptors of all objects, besides those of their waiters."""
        found: set[int] = set()
        for each in list(self._objects.values()):
            descriptor = each._waits_by()[1] if hasattr(each, "_waits_by") else _descriptor(each)
            if descriptor is not None and descriptor >= 0:
                found.add(descriptor)
        return found

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, obj: object) -> bool:
        return (id(obj) if not isinstance(obj, int) else ~obj) in self._objects

    def wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait until some have something and return these; none when `timeout` seconds end
        first.
        """
        pid = os.getpid()  # first: a handler may fork from here on
        call = "WaitSet.wait"
        self._check(call)
        end = end_of(timeout, call)
        try:
            found = self._wait(end, call, pid)
            require_process(pid, call, "wait")
        except BaseException as exc:
            require_process(pid, call, "wait", exc)
            raise
        return found

    def _wait(self, end: float, call: str, pid: int) -> tuple[Any, ...]:
        while True:
            waker = self._take_waker()
            # Each poll re-arms the idle ones, so that a change from now on ends the sleep.
            found = self._found()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            self._poll(left, waker.fd)
            self._check(call)
            require_process(pid, call, "wait")

    def _poll(self, longest: float, *also: int) -> list[tuple[int, int]]:
        poll = select.poll()
        for descriptor in self._every_descriptor().union(also):
            poll.register(descriptor, select.POLLIN)
        return poll.poll(min(_MOST_MS, max(0.0, self._longest(longest) * 1000)))

    def _longest(self, seconds: float) -> float:
        """Return how long one may sleep: shorter where a process cannot be watched."""
        bells = [getattr(each, "_bell", None) for each in list(self._objects.values())]
        return min([seconds, *(bell.longest(seconds) for bell in bells if isinstance(bell, Bell))])

    def _found(self) -> tuple[Any, ...]:
        objects = list(self._objects.values())
        plain = any(_asked(each) is None for each in objects)
        readable = {fd for fd, events in self._poll(0) if events & _EVENTS} if plain else ()
        found = []
        for each in objects:
            ask = _asked(each)
            if ask is None:
                descriptor = _descriptor(each)
                ready = descriptor < 0 or descriptor in readable
            else:
                _require_open(each)
                try:
                    ready = ask()
                except NdError:
                    _require_open(each)  # another thread has closed it
                    raise
            if ready:
                found.append(each)
        return tuple(found)

    def __iter__(self) -> ReadyLoop:
        """Return ready objects as they come."""
        return ReadyLoop(self)

    async def await_ready(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait as `wait` does, and let other tasks run meanwhile."""
        pid = os.getpid()  # first: a handler may fork from here on
        call = "WaitSet.await_ready"
        end = end_of(timeout, call)
        return await in_process(pid, call, "wait", self._await, end, call, pid)

    async def _await(self, end: float, call: str, pid: int) -> tuple[Any, ...]:
        loop = asyncio.get_running_loop()
        while True:
            self._check(call)
            require_process(pid, call, "wait")
            waker = self._take_waker()
            found = self._found()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            came: asyncio.Future[None] = loop.create_future()
            longest = min(self._longest(left), _MOST_MS / 1000)
            later = loop.call_later(longest, resolve, came)
            # Descriptors of its own, so that readers of others in this loop are left alone. An
            # epoll around them would be one too deep for the kernel.
            own: list[Owned] = []
            with contextlib.ExitStack() as stack:
                stack.callback(later.cancel)
                stack.callback(surely, _remove, loop, own, pid)
                try:
                    for each in self._groups:
                        stack.enter_context(each.resolving(came))
                except (NdError, OSError):
                    self._require_open_waiters()
                    raise
                for descriptor in self._descriptors() | {waker.fd}:
                    try:
                        with taking_from_the_system(call):
                            own += (Owned.of(os.dup, descriptor),)
                    except OSError as exc:
                        if exc.errno != errno.EBADF:
                            raise
                        resolve(came)  # closed by another thread: ask again
                        break
                    require_process(pid, call, "wait")  # a child has the epoll of its parent
                    loop.add_reader(own[-1].fd, resolve, came)
                await came

    def __aiter__(self) -> ReadyLoop:
        """Return ready objects as they come."""
        return ReadyLoop(self)

    def _require_open_waiters(self) -> None:
        """Raise Closed where another thread has closed an object that has a waiter."""
        for key in list(self._waiters):
            _require_open(self._objects.get(key))

    def _check(self, call: str) -> None:
        if self._closed:
            raise Closed(f"{call}: the wait set is closed; make a new one")

    def close(self) -> None:
        """Forget the objects, which stay as they are; a wait ends. Harmless when repeated."""
        if getattr(self, "_has_left", True):
            return
        self._closed = True
        self._objects = {}
        for each in self._groups:
            each.close()
        self._groups = []
        self._waker.wake()
        self._has_left = True  # last: an interrupted close is continued by the next one

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._objects)} objects"
        return f"<WaitSet {state}>"


class ReadyLoop(Loop[WaitSet]):
    """The ready objects of a wait set as they come; it raises Closed when the set is closed."""

    def __init__(self, source: WaitSet) -> None:
        super().__init__(source)
        self._found: tuple[Any, ...] = ()  # those of the last wait that were not returned

    def __next__(self) -> Any:
        source, found = self._source, self._found
        if source is None:
            raise StopIteration
        while not found:
            found = source.wait()
        self._found = found[1:] if self._source is source else ()
        return found[0]

    async def __anext__(self) -> Any:
        source, found = self._source, self._found
        if source is None:
            raise StopAsyncIteration
        while not found:
            found = await source.await_ready()
        self._found = found[1:] if self._source is source else ()
        return found[0]

    def close(self) -> None:
        """End the loop as that of each object ends; the objects of the set stay open, too."""
        self._found = ()
        super().close()


def _asked(obj: Any) -> Any:
    """Return a test of whether an object has something; None for a plain descriptor."""
    return getattr(obj, "ready", None) if not isinstance(obj, int) else None


def _descriptor(obj: Any) -> int:
    """Return the descriptor of an object; -1 when it was closed."""
    if isinstance(obj, int):
        return obj
    try:
        return int(obj.fileno())
    except (OSError, ValueError) as exc:
        pass_on(exc)
        return -1


def _require_open(obj: Any) -> None:
    if getattr(obj, "_closed", False) or getattr(obj, "closed", False):
        stay_at_exit()
        raise Closed(f"WaitSet: {obj!r} was closed; remove it from the set")


def _remove(loop: asyncio.AbstractEventLoop, descriptors: list[Owned], pid: int) -> None:
    """Remove the descriptors from a loop. After an interruption by a signal it is called again."""
    while descriptors:
        last = descriptors[-1]
        if last.fd >= 0 and pid == os.getpid():  # a child has the epoll of its parent's loop
            loop.remove_reader(last.fd)
        last.close()
        descriptors.pop()
