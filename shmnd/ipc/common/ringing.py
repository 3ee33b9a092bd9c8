# SPDX-License-Identifier: Apache-2.0
"""Descriptors that other processes ring: for long waits, `select`, asyncio and `WaitSet`.

A bell is a socket at an address that the kernel chose; the address stands in shared memory, where
those who are to ring find it. No descriptor passes between processes, and both end with theirs.
The bell watches processes, too (pidfd): one that died as it was to ring is seen at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["PAUSE", "Bell", "Sleeper", "ring"]

PAUSE: Final = 0.1
"""Seconds after which a short sleep becomes a long one: at a bell, which also watches processes."""
_MOST_MS: Final = 1 << 30


def ring(addresses: list[bytes]) -> None:
    """Make the bells at these addresses readable."""
    if not addresses:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as ringer:
        for address in addresses:
            with contextlib.suppress(OSError):  # full: it was rung; closed: it does not sleep
                ringer.sendto(b"!", address)


class Bell:
    """A bell of this process. `fd` is readable when it was rung, or a watched process has died."""

    def __init__(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        made.bind("")  # the kernel gives an address that no other socket has
        self.address: Final[bytes] = made.getsockname()
        self._socket = made.detach()
        try:
            self._epoll = select.epoll()
        except BaseException:
            os.close(self._socket)
            raise
        self.fd = self._epoll.fileno()
        self._epoll.register(self._socket, select.EPOLLIN)
        self._pid = os.getpid()
        self._watched: dict[int, int] = {}
        self._dead: set[int] = set()
        self._lock = threading.Lock()
        self._sleepers: set[Sleeper] = set()
        self._waiters: set[asyncio.Future[None]] = set()
        self.blind = False
        """A process cannot be watched: a sleeper looks every `PAUSE`."""

    def ring(self) -> None:
        """Ring it from here."""
        ring([self.address])

    def drain(self) -> None:
        """Take all rings. Threads and tasks that sleep at the bell look again."""
        came = False
        with contextlib.suppress(BlockingIOError):
            while self._socket >= 0:
                os.read(self._socket, 16)
                came = True
        with self._lock:
            came = self._bury() or came
            if came:
                self._wake_all()

    # -- processes --

    def watch(self, pids: Iterable[int]) -> None:
        """Watch exactly these processes; 0 is one that this process cannot name."""
        wanted = set(pids)
        wanted.discard(self._pid)
        with self._lock:
            if self.fd < 0:
                return
            self.blind = 0 in wanted
            wanted.discard(0)
            self._dead &= wanted
            for pid in [pid for pid in self._watched if pid not in wanted]:
                self._forget(pid)
            for pid in wanted - self._watched.keys() - self._dead:
                self._begin(pid)

    def _begin(self, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._dead.add(pid)
            return
        except OSError:
            self.blind = True  # no descriptor is free
            return
        self._watched[pid] = descriptor
        self._epoll.register(descriptor, select.EPOLLIN)

    def _forget(self, pid: int) -> None:
        descriptor = self._watched.pop(pid)
        self._epoll.unregister(descriptor)
        os.close(descriptor)

    def _bury(self) -> bool:
        """Watch those no more that have died; tell whether there was one."""
        if not self._watched or self.fd < 0:
            return False
        by_descriptor = {fd: pid for pid, fd in self._watched.items()}
        dead = [by_descriptor[fd] for fd, _ in self._epoll.poll(0) if fd in by_descriptor]
        for pid in dead:
            self._forget(pid)
            self._dead.add(pid)
        return bool(dead)

    def add(self, descriptor: int) -> None:
        """Be readable when a descriptor of this process is."""
        self._epoll.register(descriptor, select.EPOLLIN)

    # -- sleeping --

    @contextlib.contextmanager
    def sleeper(self) -> Iterator[Sleeper]:
        """Be one of the threads that a ring wakes: drain, arm and look inside, then sleep."""
        made = Sleeper(self)
        with self._lock:
            self._sleepers.add(made)
        try:
            yield made
        finally:
            with self._lock:
                self._sleepers.discard(made)
                made.close()

    async def ringing(self, longest: float) -> None:
        """Wait until it is rung, or so many seconds are over. Any number of tasks may wait.

        A task looks every `PAUSE` in any case: tasks of one process share a bell and its rings.
        """
        loop = asyncio.get_running_loop()
        came: asyncio.Future[None] = loop.create_future()
        if not self._waiters:
            loop.add_reader(self.fd, self._wake)
        self._waiters.add(came)
        later = loop.call_later(min(longest, PAUSE), _finish, came)
        try:
            await came
        finally:
            later.cancel()
            self._waiters.discard(came)
            if not self._waiters and self.fd >= 0:
                loop.remove_reader(self.fd)

    def longest(self, seconds: float) -> float:
        """Return how long one may sleep at it."""
        return min(seconds, PAUSE if self.blind else _MOST_MS / 1000)

    def _wake(self) -> None:
        for each in self._waiters:
            _finish(each)

    def wake_all(self) -> None:
        """Have the threads and tasks that sleep at it look again."""
        with self._lock:
            self._wake_all()

    def _wake_all(self) -> None:
        for each in self._sleepers:
            each.wake()
        for future in list(self._waiters):
            with contextlib.suppress(RuntimeError):  # its loop is closed
                future.get_loop().call_soon_threadsafe(_finish, future)

    def close(self) -> None:
        """Close the descriptors; those that sleep at it look again. Harmless twice."""
        if self._pid != os.getpid():
            self.fd = -1  # a child has its copies of the parent's, which close themselves
            return
        with self._lock:
            fd, self.fd = self.fd, -1
            if fd < 0:
                return
            self._wake_all()
            if self._waiters:
                with contextlib.suppress(Exception):
                    next(iter(self._waiters)).get_loop().remove_reader(fd)
            self._epoll.close()
            found, self._socket = self._socket, -1
            os.close(found)
            for descriptor in self._watched.values():
                os.close(descriptor)
            self._watched.clear()

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0:
            self.close()


class Sleeper:
    """One thread that sleeps at a bell."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def sleep(self, seconds: float) -> None:
        """Sleep until the bell rings, a watched process dies, or so many seconds are over."""
        bell = self._bell.fd
        if bell < 0:
            return
        poll = select.poll()
        poll.register(bell, select.POLLIN)
        poll.register(self._event, select.POLLIN)
        poll.poll(min(_MOST_MS, max(0, int(self._bell.longest(seconds) * 1000) + 1)))

    def wake(self) -> None:
        """Have it look again."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self._event, 1)

    def close(self) -> None:
        """Close its descriptor."""
        os.close(self._event)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
