# SPDX-License-Identifier: Apache-2.0
"""The other end of the broker's socket: one per process and namespace, for all its threads.

A call is one exchange and waits for its reply, with a bound. Events that come meanwhile are kept
for `events()`. When the broker is gone, the next call finds or starts another one, lets the owner
of this client tell it what the process holds (`on_reconnect`), and then goes ahead. The same
happens after a call whose outcome is unknown (it timed out or was interrupted): a new session and
a replay leave no doubt about what the broker believes.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from shmnd.broker.place import Place, place_of
from shmnd.broker.protocol import (
    VERSION,
    BadMessage,
    Datagram,
    Descriptor,
    decode,
    encode,
    receive,
    send,
)
from shmnd.broker.spawn import IDLE_SECONDS, START_SECONDS, reach
from shmnd.status import NdError, Status, error

__all__ = ["CALL_SECONDS", "BrokerClient"]

CALL_SECONDS: Final = 5.0
"""How long a call waits for its reply."""

_POSTS_MAX: Final = 65536
"""Posts that wait for a broker that does not read; beyond it the session is given up."""
_ATTEMPTS: Final = 5
"""Brokers that may die in the midst of one call or of one replay."""
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid

Event = tuple[dict[str, Any], list[int]]


class _Lost(Exception):
    """The session with this broker is over; another one may answer."""


class BrokerClient:
    """A process's session with the broker of a namespace, renewed as often as needed.

    `key` are 32 hexadecimal digits that nobody else learns; the name of this process is made of
    them (`protocol.name_of`), and stays the same whatever broker is there. `doorbell_fd` is the eventfd that
    peers ring; it is borrowed and must stay open. `on_reconnect` is called with this client, in
    the thread that met the loss, whenever a new broker must be told what the process holds; it
    uses `call` as usual. NdError says why no broker could be reached.
    """

    def __init__(
        self,
        namespace: str | None = None,
        *,
        key: str,
        doorbell_fd: int,
        base: str | None = None,
        on_reconnect: Callable[[BrokerClient], None] | None = None,
        idle: float = IDLE_SECONDS,
        timeout: float = CALL_SECONDS,
    ) -> None:
        self.on_reconnect = on_reconnect
        self.broker = ""
        """Names the broker of this session."""
        self._place: Place = place_of(namespace, base)
        self._key = key
        self._doorbell_fd = doorbell_fd
        self._idle = idle
        self._timeout = timeout
        self._lock = threading.RLock()
        self._sock: socket.socket | None = None
        self._pid = os.getpid()
        self._next_id = 1
        # Exchanges nest when a finaliser calls in the midst of one.
        self._expected: set[int] = set()
        self._replies: dict[int, dict[str, Any]] = {}
        self._replaying = False
        self._closed = False
        self._events: deque[tuple[dict[str, Any], list[Descriptor]]] = deque()
        self._posts: deque[bytes] = deque()
        self._flushing = False
        with contextlib.ExitStack() as undo:
            self._pidfd = Descriptor(os.pidfd_open(os.getpid()))
            undo.callback(self._pidfd.close)
            # Readable when the socket is, or when another thread's call has met events; and the
            # same descriptor for the whole life, whatever socket is behind it.
            self._epoll = select.epoll()
            undo.callback(self._epoll.close)
            self._waiting = Descriptor(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
            undo.callback(self._waiting.close)
            self._epoll.register(self._waiting.fileno(), select.EPOLLIN)
            self._connect(holds=False)
            undo.pop_all()

    # --- what everybody may call ---------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """False from when the broker was found gone until there is a new session."""
        return self._sock is not None

    @property
    def path(self) -> str:
        """The socket that the broker listens at."""
        return str(self._place.socket)

    def fileno(self) -> int:
        """Give a descriptor that is readable when `events()` has something to do."""
        return self._epoll.fileno()

    def call(
        self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Ask the broker and give its reply; NdError when that is not a success.

        Descriptors are borrowed. `caller` names the call of the interface in the message. A
        broker that is gone is replaced; one that does not answer in time is IO_TIMEOUT.
        """
        who = caller or f"broker {op}"
        with self._exclusive(who, time.monotonic() + self._timeout):
            reply = self._exchange_somehow(who, op, fds, fields)
        if reply["status"]:
            raise error(reply["status"], who, reply["message"])
        return reply

    def post(self, op: str, fds: Sequence[int] = (), **fields: Any) -> None:
        """Say something that needs no reply: never waits, and never raises for the broker.

        It is sent before anything that is called later. With no broker there, nothing is lost
        by dropping it: the next one is told what is held then.
        """
        if fds:
            raise ValueError("a post carries no descriptors; they might be closed before it goes")
        if not self.alive or self._closed or self._inherited():
            return
        self._posts.append(encode({"op": op, **fields}))
        # May run in a finaliser in the midst of a call: the one who has the lock sends it too.
        self._flush_when_free()

    def events(self) -> list[Event]:
        """Take all that came unasked, oldest first, without waiting.

        The descriptors belong to the taker. An event that lost its descriptors on the way (none
        was free) has `"fds_lost": True` and none.
        """
        if self._closed or self._inherited():
            return []
        if self._lock.acquire(blocking=False):
            try:
                if self.alive:
                    self._drain()
            except _Lost:
                self._hang_up()
            finally:
                self._lock.release()
        # Else another thread is in a call, and collects them meanwhile.
        self._flush_when_free()
        return self._take_events()

    def reconnect(self) -> None:
        """Find or start another broker, if this one is gone, and tell it what is held."""
        with self._exclusive("broker reconnect", time.monotonic() + START_SECONDS):
            self._ready()

    def close(self) -> None:
        """Hang up; the broker forgets this process. Safe twice, and in a forked child.

        In a child it closes the child's copies alone, and takes no lock, which another thread
        may have held at the fork.
        """
        self._closed = True
        self._hang_up()
        self._epoll.close()
        self._waiting.close()
        self._pidfd.close()
        self._events.clear()
        self._posts.clear()

    # --- sessions ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exclusive(self, who: str, deadline: float) -> Iterator[None]:
        """Hold the lock; afterwards see to what others left for its holder."""
        self._require_own()  # in a forked child nobody may be left to release it
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._no_answer(who)
        try:
            yield
        finally:
            self._lock.release()
            self._flush_when_free()
            if self._events:
                self._announce_events()

    def _inherited(self) -> bool:
        """Tell whether this is a forked child, where the session belongs to the parent."""
        return os.getpid() != self._pid

    def _require_own(self) -> None:
        if self._closed or self._inherited():
            why = "belongs to the parent process" if self._inherited() else "is closed"
            raise error(Status.DEVICE_REMOVED, "broker", f"the session with {self.path} {why}")

    def _ready(self) -> None:
        """See that there is a session, a new one if need be."""
        for _ in range(_ATTEMPTS + 1):
            if self.alive:
                return
            self._require_own()
            if self._replaying:
                raise _Lost  # whoever replays tries again from the beginning
            try:
                self._connect(holds=True)
                self._replay()
            except _Lost:
                continue
            except BaseException:
                self._hang_up()  # half told is worse than nothing told
                raise
        raise self._keeps_leaving("broker reconnect")

    def _replay(self) -> None:
        self._replaying = True
        try:
            if self.on_reconnect is not None:
                self.on_reconnect(self)
            deadline = time.monotonic() + self._timeout
            self._exchange("broker holds", "holds", (), {"done": True}, deadline)
        finally:
            self._replaying = False

    def _connect(self, *, holds: bool) -> None:
        """Say hello to the broker, wherever it is; try again when it was just about to leave."""
        deadline = time.monotonic() + START_SECONDS
        hello = {
            "version": VERSION,
            "key": self._key,
            "pid": os.getpid(),
            "holds": holds,
        }
        while True:
            sock = reach(self._place, deadline, idle=self._idle)
            try:
                self._require_same_user(sock)
                self._begin(sock)
                until = min(deadline, time.monotonic() + self._timeout)
                fds = (self._doorbell_fd, self._pidfd.fileno())
                reply = self._exchange("open_adapter", "hello", fds, hello, until)
            except _Lost:
                if time.monotonic() >= deadline:
                    raise self._no_answer("open_adapter") from None
                time.sleep(0.002)
                continue
            except BaseException:
                self._hang_up()
                sock.close()
                raise
            status = reply["status"]
            if status:
                self._hang_up()
                raise error(status, "open_adapter", f"broker at {self.path}: {reply['message']}")
            self.broker = reply["broker"]
            return

    def _require_same_user(self, sock: socket.socket) -> None:
        packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid = _CREDENTIALS.unpack(packed)[1]
        if uid != os.geteuid():
            raise error(
                Status.ACCESS_VIOLATION,
                "open_adapter",
                f"the broker at {self.path} runs as uid {uid}, not as {os.geteuid()}",
            )

    def _begin(self, sock: socket.socket) -> None:
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._posts.clear()  # for a broker that is no more
        self._sock = sock

    def _hang_up(self) -> None:
        """End the session; what came before stays to be taken."""
        sock, self._sock = self._sock, None
        if sock is None:
            return
        if not self._inherited():  # the epoll and the eventfd are the parent's, and still in use
            with contextlib.suppress(OSError, ValueError):
                # A forked child may keep the open file, and with it the registration.
                self._epoll.unregister(sock.fileno())
            self._announce_events()  # whoever sleeps on `fileno` looks, and finds it not alive
        sock.close()

    # --- exchanges -----------------------------------------------------------------------------

    def _exchange_somehow(
        self, who: str, op: str, fds: Sequence[int], fields: dict[str, Any]
    ) -> dict[str, Any]:
        """Exchange with this broker, or with the next one when this one went before it answered.

        What the old one had done of it went with it, or with the session.
        """
        for _ in range(_ATTEMPTS):
            self._ready()
            try:
                return self._exchange(who, op, fds, fields, time.monotonic() + self._timeout)
            except _Lost:
                if self._replaying:
                    raise
        raise self._keeps_leaving(who)

    def _exchange(
        self, who: str, op: str, fds: Sequence[int], fields: dict[str, Any], deadline: float
    ) -> dict[str, Any]:
        """Send a request and wait for its reply. _Lost when the session ends before it comes."""
        ident = self._next_id
        self._next_id += 1
        try:
            data = encode({"op": op, "id": ident, **fields})
        except ValueError as exc:
            raise error(Status.INVALID_BUFFER_SIZE, who, str(exc)) from None
        sock = self._sock
        self._expected.add(ident)
        try:
            self._flush_all(who, deadline)
            while not self._send(data, fds):
                self._wait(select.POLLIN | select.POLLOUT, who, deadline)
                self._drain()  # a broker whose events are not taken reads no requests
            while ident not in self._replies:
                self._drain()
                if self._sock is not sock:
                    raise _Lost  # a call within this one met the loss, and found another broker
                if ident not in self._replies:
                    self._wait(select.POLLIN, who, deadline)
        except BaseException as exc:
            if self._sock is sock:
                # Whether the broker did it is unknown now; a new session makes it known.
                self._hang_up()
            if not isinstance(exc, _Lost) or ident not in self._replies:
                self._replies.pop(ident, None)
                raise
        finally:
            self._expected.discard(ident)
        return self._replies.pop(ident)

    def _send(self, data: bytes, fds: Sequence[int] = ()) -> bool:
        """Send one datagram; False when there is no room."""
        sock = self._sock
        if sock is None:
            raise _Lost
        try:
            send(sock, data, fds)
        except BlockingIOError:
            return False
        except ConnectionError:
            # It is gone, but what it said before is still there to be read.
            self._drain()
            raise _Lost from None
        except OSError as exc:
            raise error(
                Status.INSUFFICIENT_RESOURCES, "broker", f"cannot send to {self.path}: {exc}"
            ) from exc
        return True

    def _drain(self) -> None:
        """Take all that is there: events and replies that are waited for. _Lost at the end."""
        while (datagram := self._next_datagram()) is not None:
            message = self._understand(datagram)
            if "ev" in message:
                self._keep(message, datagram)
                continue
            for ident in self._expected:
                # 0: turned away before anything was read. Late replies are for nobody.
                if message.get("re") in (ident, 0):
                    self._replies[ident] = message

    def _next_datagram(self) -> Datagram | None:
        if self._sock is None:
            raise _Lost
        try:
            datagram = receive(self._sock)
        except BlockingIOError:
            return None
        except OSError:
            raise _Lost from None
        if not datagram.data:
            raise _Lost
        return datagram

    @staticmethod
    def _understand(datagram: Datagram) -> dict[str, Any]:
        try:
            return decode(datagram.data)
        except BadMessage:
            raise _Lost from None  # whatever it is, it is no broker of ours

    def _keep(self, message: dict[str, Any], datagram: Datagram) -> None:
        if datagram.cut:
            message["fds_lost"] = True
            datagram.fds.clear()
        self._events.append((message, datagram.fds))

    def _wait(self, what: int, who: str, deadline: float) -> None:
        """Wait for the socket; IO_TIMEOUT at the deadline."""
        sock = self._sock
        if sock is None:
            raise _Lost
        poll = select.poll()
        try:
            poll.register(sock, what)
        except ValueError:
            raise _Lost from None  # another thread has closed the client
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise self._no_answer(who)

    def _no_answer(self, who: str) -> NdError:
        return error(
            Status.IO_TIMEOUT,
            who,
            f"the broker at {self.path} did not answer within {self._timeout:g} s; is it stopped?",
        )

    def _keeps_leaving(self, who: str) -> NdError:
        return error(
            Status.DEVICE_NOT_READY,
            who,
            f"the broker at {self.path} went away {_ATTEMPTS} times in the midst of it",
        )

    # --- posts and events ----------------------------------------------------------------------

    def _flush_all(self, who: str, deadline: float) -> None:
        """Send the posts that wait, before something that follows them. With the lock."""
        while not self._flush():
            self._wait(select.POLLIN | select.POLLOUT, who, deadline)
            self._drain()

    def _flush_when_free(self) -> None:
        """Send the posts that wait, unless another thread has the lock: it will do so then."""
        while self._posts and self._lock.acquire(blocking=False):
            try:
                done = self._flush()
                self._want_room(not done)
                if len(self._posts) > _POSTS_MAX:
                    raise _Lost
            except (_Lost, NdError):
                self._hang_up()
                self._posts.clear()
                return
            finally:
                self._lock.release()
            if not done:
                return

    def _flush(self) -> bool:
        """Send posts as long as there is room; True when none is left to this thread."""
        if self._flushing:
            return True  # this thread is at it already, further down its stack
        self._flushing = True
        try:
            while self._posts:
                if not self._send(self._posts[0]):
                    return False
                self._posts.popleft()
            return True
        finally:
            self._flushing = False

    def _want_room(self, wanted: bool) -> None:
        """Become readable for the owner when posts could go on."""
        if self._sock is not None:
            events = select.EPOLLIN | (select.EPOLLOUT if wanted else 0)
            self._epoll.modify(self._sock.fileno(), events)

    def _announce_events(self) -> None:
        with contextlib.suppress(OSError, BlockingIOError):
            os.eventfd_write(self._waiting.fileno(), 1)

    def _take_events(self) -> list[Event]:
        with contextlib.suppress(OSError, BlockingIOError):
            os.eventfd_read(self._waiting.fileno())
        taken: list[Event] = []
        while self._events:
            message, fds = self._events.popleft()
            taken.append((message, [fd.detach() for fd in fds]))
        return taken
