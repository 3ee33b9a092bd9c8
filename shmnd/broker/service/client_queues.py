# SPDX-License-Identifier: Apache-2.0
"""The connections to clients: the messages queued for each client, and the clients to drop.

A message is sent at once, or it waits in the bounded queue of its client. While messages wait for a
client, nothing is read from it. This module does not interpret messages.

Clients have their turns in the order in which their messages came, one message each: if one process
sends a message and then, by another channel, causes a second process to send one, the first message
is read first. So a socket reports once and goes to the end of the queue when it is armed again
(EPOLLONESHOT).
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

from shmnd.broker.protocol import MAX_MESSAGE, PassedFd, encode, join, send
from shmnd.common.steps import step

__all__ = ["Client", "Clients", "ServerLimits"]

_TRANSIENT: Final = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM)
_TOGETHER: Final = 16
"""The most messages that wait for each other; more would delay the first."""
_EPOLLIN: Final = select.EPOLLIN
_NEXT_REQUEST: Final = select.EPOLLIN | select.EPOLLONESHOT
_RETRY: Final = 0.02
"""Seconds until a send is tried again that the kernel had no room for."""
_LATER: Final = 0.005
"""Seconds for which a message that may come later waits for another one to its client."""


@dataclass(frozen=True)
class ServerLimits:
    """How much time and memory one client may take."""

    clients: int = 4096
    sockets_per_process: int = 64
    """A process needs one; processes that the kernel shows no id of are not counted."""
    queued_bytes: int = 8 << 20
    queued_messages: int = 65536
    hello_seconds: float = 5.0
    batch: int = 64
    """New clients, or requests of clients, taken before everything else is polled."""


@dataclass(eq=False, slots=True)
class Client:
    """One client's socket, and what waits for it."""

    number: int
    pid: int
    sock: socket.socket
    hello_before: float
    queue: deque[tuple[bytes, tuple[PassedFd, ...]]] = field(default_factory=deque)
    queued_bytes: int = 0
    retry_at: float = 0.0
    interest: int = 0
    """The events for which its socket is registered; 0: it is not in the epoll."""
    reported: bool = False
    """The epoll has reported its socket, and reports it again only after `watch` has armed it."""
    gathered: list[bytes] = field(default_factory=list)
    """Messages that go together with the next ones, at the end of the turn at the latest."""
    gathered_bytes: int = 0
    going: bool = False
    """`send_gathered` sends its gathered messages at the end of the turn."""
    deaf: bool = False
    """It has closed, or receives no more: nothing is sent, and its messages are still read."""

    def close(self) -> None:
        """Close the connection, and the descriptors that waited."""
        self.sock.close()
        self.queue.clear()
        self.gathered.clear()


class Clients:
    """All clients that are connected, by their numbers."""

    def __init__(self, limits: ServerLimits) -> None:
        self._epoll = select.epoll()
        self._by_fd: dict[int, Client] = {}
        self._limits = limits
        self._open: dict[int, Client] = {}
        self._retrying: dict[int, Client] = {}
        self._doomed: dict[int, str] = {}
        """Clients that are dropped at the end of the step, and why."""
        self._gathering: list[Client] = []
        """Clients that are `going`."""
        self._held: dict[int, float] = {}
        """Clients with messages that may wait a moment, and until when; the earliest first."""

    def __len__(self) -> int:
        return len(self._open)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `ready` has something."""
        return self._epoll.fileno()

    def ready(self) -> list[tuple[Client, bool]]:
        """Return the clients whose turn it is, in order, each with whether it has room to send."""
        turns = []
        for fd, events in self._epoll.poll(0, self._limits.batch):
            client = self._by_fd[fd]
            client.reported = True
            turns.append((client, bool(events & ~select.EPOLLIN)))  # sending reports a failure too
        return turns

    def add(self, client: Client) -> None:
        """Serve a client from now on."""
        self._open[client.number] = client
        self.watch(client)

    def serves(self, number: int) -> bool:
        """Return whether a client is there and stays."""
        return number in self._open and not (self._doomed and number in self._doomed)

    def client(self, number: int) -> Client | None:
        """Return a client that is there."""
        return self._open.get(number)

    def doom(self, number: int, why: str) -> None:
        """Drop a client at the end of this step; nothing more is read from or sent to it."""
        if number in self._open:
            self._doomed.setdefault(number, why)

    def take_doomed(self) -> tuple[Client, str] | None:
        """Close the connection of a doomed client; return the client and the reason, or None."""
        if not self._doomed:
            return None
        number, why = self._doomed.popitem()
        client = self._open.pop(number)
        self._retrying.pop(number, None)
        self._held.pop(number, None)
        self._unwatch(client)
        client.close()
        return client, why

    def close(self) -> list[int]:
        """Close the connections of all and return their numbers."""
        numbers = list(self._open)
        for client in self._open.values():
            client.close()
        self._open.clear()
        self._by_fd.clear()
        self._epoll.close()
        return numbers

    def retry(self, now: float) -> None:
        """Repeat sends that the kernel had no room for; send messages that waited long enough."""
        for number in [number for number, until in self._held.items() if until <= now]:
            self._send_gathered(self._open[number])
        for client in [each for each in self._retrying.values() if each.retry_at <= now]:
            del self._retrying[client.number]
            self.flush(client)

    def next_retry(self) -> float:
        """Return the moment at which `retry` has something to do."""
        moments = [client.retry_at for client in self._retrying.values()]
        if self._held:
            moments.append(next(iter(self._held.values())))
        return min(moments, default=float("inf"))

    def push(
        self,
        number: int,
        message: Mapping[str, object],
        fds: tuple[PassedFd, ...] = (),
        later: bool = False,
    ) -> None:
        """Send a message to a client, now or when it has room; none to one that leaves.

        One that may come `later` waits for the next one, so that the two wake the client once.
        """
        if not self.serves(number):
            return
        client = self._open[number]
        try:
            data = encode(message)
        except ValueError as exc:
            self.doom(client.number, f"dropped: no message for it: {exc}")
            return
        if fds or client.queue or client.gathered_bytes + len(data) >= MAX_MESSAGE:
            self._send_gathered(client)
        if fds or client.queue:
            self._send_or_queue(client, data, fds)
            return
        client.gathered.append(data)
        client.gathered_bytes += len(data) + 1
        if len(client.gathered) >= _TOGETHER:
            self._send_gathered(client)
        elif later:
            self._held.setdefault(number, time.monotonic() + _LATER)
        elif not client.going:
            client.going = True
            self._gathering.append(client)

    def send_gathered(self) -> None:
        """Send the gathered messages of each client, at the end of a turn."""
        while self._gathering:
            client = self._gathering.pop()
            client.going = False
            self._send_gathered(client)

    def _send_gathered(self, client: Client) -> None:
        if client.gathered:
            data = join(client.gathered)
            client.gathered.clear()
            client.gathered_bytes = 0
            self._held.pop(client.number, None)
            self._send_or_queue(client, data, ())

    def _send_or_queue(self, client: Client, data: bytes, fds: tuple[PassedFd, ...]) -> None:
        if not self.serves(client.number):
            return
        if not client.queue and self._try_send(client, data, fds):
            return
        client.queue.append((data, fds))
        client.queued_bytes += len(data)
        limits = self._limits
        if client.queued_bytes > limits.queued_bytes or len(client.queue) > limits.queued_messages:
            self.doom(
                client.number, f"dropped: it does not read ({client.queued_bytes} bytes wait)"
            )
        else:
            self.watch(client)

    def flush(self, client: Client) -> None:
        """Send what waits, as long as there is room."""
        while client.queue and self.serves(client.number):
            data, fds = client.queue[0]
            if not self._try_send(client, data, fds):
                break
            client.queue.popleft()
            client.queued_bytes -= len(data)
        self.watch(client)

    def _try_send(self, client: Client, data: bytes, fds: tuple[PassedFd, ...]) -> bool:
        """Send one message; return False when it has to wait, or when the client is doomed.

        A client that has closed is sent nothing, and it is not doomed here: the messages that it
        sent before its end, such as the end of a connection, are read first.
        """
        if client.deaf:
            return True
        try:
            step("broker-is-about-to-send")
            send(client.sock, data, [fd.fileno() for fd in fds])
            step("broker-has-sent")
            return True
        except BlockingIOError:
            pass  # its socket is full: wait until it has read something
        except ConnectionError:
            client.deaf = True
            return True
        except OSError as exc:
            if exc.errno in _TRANSIENT:
                client.retry_at = time.monotonic() + _RETRY
                self._retrying[client.number] = client
            else:
                self.doom(client.number, f"its socket failed: {exc.strerror}")
        return False

    def watch(self, client: Client) -> None:
        """Listen for requests, or while something waits for it, only for room to send that."""
        if self._doomed and client.number in self._doomed:
            return
        if not client.queue:
            if client.interest == _EPOLLIN and client.reported:  # as after most messages
                self._epoll.modify(client.sock.fileno(), _NEXT_REQUEST)
                client.reported = False
                return
            interest = _EPOLLIN
        elif client.number in self._retrying:
            interest = 0
        else:
            interest = select.EPOLLOUT
        if interest == client.interest and not client.reported:
            return
        if not interest:
            self._unwatch(client)
            return
        fd = client.sock.fileno()
        if client.interest:
            self._epoll.modify(fd, interest | select.EPOLLONESHOT)
        else:
            self._epoll.register(fd, interest | select.EPOLLONESHOT)
            self._by_fd[fd] = client
        client.interest, client.reported = interest, False

    def _unwatch(self, client: Client) -> None:
        if client.interest:
            self._epoll.unregister(client.sock.fileno())
            del self._by_fd[client.sock.fileno()]
            client.interest = 0
