# SPDX-License-Identifier: Apache-2.0
"""The lines to the broker's clients: what waits for each of them, and who has to go.

A message is sent at once or waits in its client's own bounded queue; while something waits, nothing
is read from that client. This module does not interpret messages.

Clients have their turns in the order in which their words came, one message each: what one process
said before it told another by other ways to speak is then heard before the other one. So a socket
reports once and goes to the end of the line when it is armed again (EPOLLONESHOT).
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shmnd.broker.protocol import MAX_MESSAGE, Descriptor, encode, join, send
from shmnd.common.steps import step

__all__ = ["Line", "Lines", "ServerLimits"]

_TRANSIENT: Final = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)
_TOGETHER: Final = 16
"""The most messages that wait for each other; more would delay the first."""
_EPOLLIN: Final = select.EPOLLIN
_NEXT_REQUEST: Final = select.EPOLLIN | select.EPOLLONESHOT
_RETRY: Final = 0.02
"""Seconds until a send is tried again that the kernel had no room for."""


@dataclass(frozen=True)
class ServerLimits:
    """How much patience and memory one client may take."""

    clients: int = 4096
    sockets_per_process: int = 64
    """A process needs one; processes that the kernel shows no id of are not counted."""
    queued_bytes: int = 8 << 20
    queued_messages: int = 65536
    hello_seconds: float = 5.0
    batch: int = 64
    """New clients, or requests of clients, taken before everything else is polled."""


@dataclass(eq=False, slots=True)
class Line:
    """One client's socket, and what waits for it."""

    number: int
    pid: int
    sock: socket.socket
    hello_before: float
    queue: deque[tuple[bytes, tuple[Descriptor, ...]]] = field(default_factory=deque)
    queued_bytes: int = 0
    retry_at: float = 0.0
    interest: int = 0
    reported: bool = False
    """It has had its report, and is watched again only when that is asked for."""
    gathered: list[bytes] = field(default_factory=list)
    """Messages that go together with the next ones, at the end of the turn at the latest."""
    gathered_bytes: int = 0

    def close(self) -> None:
        """Hang up, and give back the descriptors that waited."""
        self.sock.close()
        self.queue.clear()
        self.gathered.clear()


class Lines:
    """All clients that are connected, by their numbers."""

    def __init__(self, limits: ServerLimits) -> None:
        self._epoll = select.epoll()
        self._by_fd: dict[int, Line] = {}
        self._limits = limits
        self._open: dict[int, Line] = {}
        self._retrying: dict[int, Line] = {}
        self._doomed: dict[int, str] = {}
        self._gathering: list[Line] = []

    def __len__(self) -> int:
        return len(self._open)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `ready` has something."""
        return self._epoll.fileno()

    def ready(self) -> list[tuple[Line, bool]]:
        """Return those who have their turn, in order, and whether there is room to send to them."""
        turns = []
        for fd, events in self._epoll.poll(0, self._limits.batch):
            line = self._by_fd[fd]
            line.reported = True
            turns.append((line, bool(events & ~select.EPOLLIN)))  # sending reports a failure too
        return turns

    def add(self, line: Line) -> None:
        """Serve a client from now on."""
        self._open[line.number] = line
        self.watch(line)

    def serves(self, number: int) -> bool:
        """Return whether a client is there and stays."""
        return number in self._open and not (self._doomed and number in self._doomed)

    def doom(self, number: int, why: str) -> None:
        """Drop a client at the end of this step; nothing more is read from or sent to it."""
        if number in self._open:
            self._doomed.setdefault(number, why)

    def take_doomed(self) -> tuple[Line, str] | None:
        """Close and give one of those that have to go, and why; None when none is left."""
        if not self._doomed:
            return None
        number, why = self._doomed.popitem()
        line = self._open.pop(number)
        self._retrying.pop(number, None)
        self._unwatch(line)
        line.close()
        return line, why

    def close(self) -> list[int]:
        """Hang up on everybody; give their numbers."""
        numbers = list(self._open)
        for line in self._open.values():
            line.close()
        self._open.clear()
        self._by_fd.clear()
        self._epoll.close()
        return numbers

    def retry(self, now: float) -> None:
        """Try again what the kernel had no room for."""
        for line in [each for each in self._retrying.values() if each.retry_at <= now]:
            del self._retrying[line.number]
            self.flush(line)

    def next_retry(self) -> float:
        """Return the moment at which `retry` has something to do."""
        return min((line.retry_at for line in self._retrying.values()), default=float("inf"))

    def push(
        self, number: int, message: Mapping[str, object], fds: tuple[Descriptor, ...] = ()
    ) -> None:
        """Say something to a client, now or when it has room; nothing to one that goes."""
        if not self.serves(number):
            return
        line = self._open[number]
        try:
            data = encode(message)
        except ValueError as exc:
            self.doom(line.number, f"dropped: no message for it: {exc}")
            return
        if fds or line.queue or line.gathered_bytes + len(data) >= MAX_MESSAGE:
            self._send_gathered(line)
        if fds or line.queue:
            self._send_or_queue(line, data, fds)
            return
        if not line.gathered:
            self._gathering.append(line)
        line.gathered.append(data)
        line.gathered_bytes += len(data) + 1
        if len(line.gathered) >= _TOGETHER:
            self._send_gathered(line)

    def send_gathered(self) -> None:
        """Send the gathered messages of each client, at the end of a turn."""
        while self._gathering:
            self._send_gathered(self._gathering.pop())

    def _send_gathered(self, line: Line) -> None:
        if line.gathered:
            data = join(line.gathered)
            line.gathered.clear()
            line.gathered_bytes = 0
            self._send_or_queue(line, data, ())

    def _send_or_queue(self, line: Line, data: bytes, fds: tuple[Descriptor, ...]) -> None:
        if not self.serves(line.number):
            return
        if not line.queue and self._try_send(line, data, fds):
            return
        line.queue.append((data, fds))
        line.queued_bytes += len(data)
        limits = self._limits
        if line.queued_bytes > limits.queued_bytes or len(line.queue) > limits.queued_messages:
            self.doom(line.number, f"dropped: it does not read ({line.queued_bytes} bytes wait)")
        else:
            self.watch(line)

    def flush(self, line: Line) -> None:
        """Send what waits, as long as there is room."""
        while line.queue and self.serves(line.number):
            data, fds = line.queue[0]
            if not self._try_send(line, data, fds):
                break
            line.queue.popleft()
            line.queued_bytes -= len(data)
        self.watch(line)

    def _try_send(self, line: Line, data: bytes, fds: tuple[Descriptor, ...]) -> bool:
        """Send one message; False when it has to wait, or when the client is doomed."""
        try:
            step("broker-is-about-to-send")
            send(line.sock, data, [fd.fileno() for fd in fds])
            step("broker-has-sent")
            return True
        except BlockingIOError:
            pass  # its socket is full: wait until it has read something
        except OSError as exc:
            if exc.errno in _TRANSIENT:
                line.retry_at = time.monotonic() + _RETRY
                self._retrying[line.number] = line
            else:
                self.doom(line.number, f"its socket failed: {exc.strerror}")
        return False

    def watch(self, line: Line) -> None:
        """Listen for requests, or while something waits for it, only for room to send that."""
        if self._doomed and line.number in self._doomed:
            return
        if not line.queue:
            if line.interest == _EPOLLIN and line.reported:  # as after most messages
                self._epoll.modify(line.sock.fileno(), _NEXT_REQUEST)
                line.reported = False
                return
            interest = _EPOLLIN
        elif line.number in self._retrying:
            interest = 0
        else:
            interest = select.EPOLLOUT
        if interest == line.interest and not line.reported:
            return
        if not interest:
            self._unwatch(line)
            return
        fd = line.sock.fileno()
        if line.interest:
            self._epoll.modify(fd, interest | select.EPOLLONESHOT)
        else:
            self._epoll.register(fd, interest | select.EPOLLONESHOT)
            self._by_fd[fd] = line
        line.interest, line.reported = interest, False

    def _unwatch(self, line: Line) -> None:
        if line.interest:
            self._epoll.unregister(line.sock.fileno())
            del self._by_fd[line.sock.fileno()]
            line.interest = 0
