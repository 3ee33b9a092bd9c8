# SPDX-License-Identifier: Apache-2.0
"""Waiting for many: subscribers, servers, clients, listeners, queues, readers, descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from shmnd.common.closing import Closing
from shmnd.common.deadline import end_of
from shmnd.ipc.common.ringing import Bell, finish
from shmnd.ipc.errors import Closed
from shmnd.waiter import Waiter, WaiterGroup

__all__ = ["WaitSet"]

_MOST_MS: Final = 1 << 30
_EVENTS: Final = select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL
"""A descriptor that was closed is ready: using it raises at once."""


class WaitSet(Closing):
    """A set of objects, of which `wait` returns those that have something.

    An object of `shmnd.ipc` is ready when taking from it would find something; a descriptor, or
    any object with a `fileno()`, when it is readable.
    """

    def __init__(self, *objects: Any) -> None:
        self._objects: dict[int, Any] = {}
        self._closed = False
        self._waiters: dict[int, Waiter] = {}  # of the objects that have one, by their keys
        self._groups: list[WaiterGroup] = []
        self._closer = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        for each in objects:
            self.add(each)

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
                os.fstat(_descriptor(obj))
            except OSError as exc:
                raise ValueError(
                    f"WaitSet.add: {obj!r} is not an open descriptor: {exc.strerror}"
                ) from None
        self._objects[key] = obj

    def remove(self, obj: Any) -> None:
        """Remove an object; KeyError when it is not there."""
        key = id(obj) if not isinstance(obj, int) else ~obj
        if key not in self._objects:
            raise KeyError(f"WaitSet.remove: {obj!r} was not added")
        del self._objects[key]
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            self._groups = [group for group in self._groups if not group.remove(waiter)]

    def _every_descriptor(self) -> set[int]:
        """Return those to sleep at; a group has one for all objects that have waiters."""
        found = {self._closer}
        for group in self._groups:
            with contextlib.suppress(ValueError):  # another thread has just closed it
                found.add(group.fileno())
        return found | self._descriptors()

    def _descriptors(self) -> set[int]:
        """Return the descriptors of all objects, besides those of their waiters."""
        found: set[int] = set()
        for each in list(self._objects.values()):
            descriptor = each._waits_by()[1] if hasattr(each, "_waits_by") else _descriptor(each)
            if descriptor is not None:
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
        self._check("WaitSet.wait")
        call = "WaitSet.wait"
        end = end_of(timeout, call)
        while True:
            # Each poll re-arms the idle ones, so that a change from now on ends the sleep.
            found = self._found(0)
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            self._poll(left)
            self._check("WaitSet.wait")

    def _poll(self, longest: float) -> list[tuple[int, int]]:
        poll = select.poll()
        for descriptor in self._every_descriptor():
            poll.register(descriptor, select.POLLIN)
        return poll.poll(min(_MOST_MS, max(0.0, self._longest(longest) * 1000)))

    def _longest(self, seconds: float) -> float:
        """Return how long one may sleep: shorter where a process cannot be watched."""
        bells = [getattr(each, "_bell", None) for each in self._objects.values()]
        return min([seconds, *(bell.longest(seconds) for bell in bells if isinstance(bell, Bell))])

    def _found(self, longest: float) -> tuple[Any, ...]:
        plain = [each for each in self._objects.values() if _asked(each) is None]
        readable = {fd for fd, events in self._poll(longest) if events & _EVENTS} if plain else ()
        found = []
        for each in list(self._objects.values()):
            ask = _asked(each)
            if ask() if ask is not None else _descriptor(each) in readable:
                found.append(each)
        return tuple(found)

    def __iter__(self) -> Iterator[Any]:
        """Return ready objects as they come."""
        while True:
            yield from self.wait()

    async def await_ready(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait as `wait` does, and let other tasks run meanwhile."""
        end = end_of(timeout, "WaitSet.await_ready")
        loop = asyncio.get_running_loop()
        while True:
            self._check("WaitSet.await_ready")
            found = self._found(0)
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            came: asyncio.Future[None] = loop.create_future()
            longest = min(self._longest(left), _MOST_MS / 1000)
            later = loop.call_later(longest, finish, came)
            # Descriptors of its own, so that readers of others in this loop are left alone. An
            # epoll around them would be one too deep for the kernel.
            own: list[int] = []
            with contextlib.ExitStack() as stack:
                stack.callback(later.cancel)
                stack.callback(_remove, loop, own)
                for each in self._groups:
                    stack.enter_context(each.resolving(came))
                for descriptor in self._descriptors() | {self._closer}:
                    own.append(os.dup(descriptor))
                    loop.add_reader(own[-1], finish, came)
                await came

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Return ready objects as they come."""
        while True:
            for each in await self.await_ready():
                yield each

    def _check(self, call: str) -> None:
        if self._closed:
            raise Closed(f"{call}: the wait set is closed; make a new one")

    def close(self) -> None:
        """Forget the objects, which stay as they are; a wait ends. Harmless when repeated."""
        if getattr(self, "_closed", True):
            return
        self._closed = True
        self._objects = {}
        groups, self._groups = self._groups, []
        for each in groups:
            each.close()
        os.eventfd_write(self._closer, 1)

    def __del__(self) -> None:
        # Not in close(): a wait of another thread may still have it.
        closer = getattr(self, "_closer", -1)
        if closer >= 0:
            os.close(closer)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._objects)} objects"
        return f"<WaitSet {state}>"


def _asked(obj: Any) -> Any:
    """Return what tells whether an object has something; None for a plain descriptor."""
    return getattr(obj, "ready", None) if not isinstance(obj, int) else None


def _descriptor(obj: Any) -> int:
    return obj if isinstance(obj, int) else int(obj.fileno())


def _remove(loop: asyncio.AbstractEventLoop, descriptors: list[int]) -> None:
    for descriptor in descriptors:
        loop.remove_reader(descriptor)
        os.close(descriptor)
