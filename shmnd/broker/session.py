# SPDX-License-Identifier: Apache-2.0
"""One socket to a broker: requests with their replies, posts, and the events that come unasked.

Which broker is at the other end, and what follows when it goes, is the business of `client.py`.
"""

from __future__ import annotations

import math
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence, Sized
from typing import Any, Final

from shmnd.broker.lock import take_lock
from shmnd.broker.place import Place, no_answer
from shmnd.broker.posts import Posts
from shmnd.broker.protocol import (
    Arrived,
    BadMessage,
    contents,
    decode,
    encode_request,
    receive_into,
    send,
    split,
)
from shmnd.broker.untaken import close_all
from shmnd.common.brief_waits import too_late
from shmnd.common.descriptors import EventCount
from shmnd.common.interruption import Ignoring, is_interruption, pass_on
from shmnd.common.streams import close_epoll, new_epoll
from shmnd.status import NdError, Status, error

__all__ = ["EventWithFds", "Lost", "Session"]

_LONGEST_WAIT: Final = 0.02
"""Seconds of one wait for a reply. A signal handler, or a finaliser, that asks the broker too may
read the reply in the moment before the wait begins."""

_ABANDONED: Final = frozenset({"announce", "find", "meet", "sync", "watch"})
"""Requests that a handler of a signal may end by an exception, without an end of the session. They
change nothing, or their callers post what undoes them; the broker takes that after the request."""

EventWithFds = tuple[dict[str, Any], list[int]]  # the descriptors that came with it


class Lost(Exception):
    """The session with this broker is over; another one may answer."""


class Session:
    """The present socket, the messages that wait to be sent, and those that were not taken yet.

    All but posting and taking events wants the lock held.
    """

    def __init__(self, place: Place, timeout: float) -> None:
        self._place = place
        self._timeout = timeout
        self._lock = threading.RLock()
        self._sock: socket.socket | None = None
        self._broker_pid = 0
        """As the kernel reports it; 0 where it is not visible to this process."""
        self._broker_user = -1
        self._pid = os.getpid()
        self._next_id = 1
        # Numbers of requests. There are several where a finaliser calls during an exchange.
        self._expected: set[int] = set()  # an exchange waits for the reply
        self._unsure: set[int] = set()  # it is unknown what became of them
        self._asked: set[int] = set()  # no call waits: the reply becomes an event
        self._replies: dict[int, dict[str, Any]] = {}
        self._arrived: deque[Arrived] = deque()  # datagrams that were read and not sorted
        self._events: deque[EventWithFds] = deque()
        self.unsorted: list[Sized] = [self._arrived, self._events]
        """All that was read and not taken; after a handler raised, no descriptor shows it."""
        self._posts = Posts()
        self._wants_room = False  # posts wait until the socket takes more
        self._interest = select.EPOLLIN  # of the socket, while no exchange waits
        self._announced = False  # the event count is readable: there may be events
        # Readable when the socket is, or when another thread's call has met events; and the
        # same descriptor for the whole life, whatever socket is behind it.
        self._epoll = new_epoll()
        try:
            self._waiting = EventCount()
            self._epoll.register(self._waiting.fileno(), select.EPOLLIN)
        except BaseException:
            close_epoll(self._epoll)
            raise

    @property
    def path(self) -> str:
        """The socket that the broker listens at."""
        return str(self._place.socket)

    def _inherited(self) -> bool:
        """Return whether this is a forked child, where the session belongs to the parent."""
        return os.getpid() != self._pid

    def _begin(self, sock: socket.socket) -> None:
        self._interest = select.EPOLLIN
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._unsure &= self._expected
        self._posts.clear()  # for a broker that has ended
        self._asked.clear()
        self._sock = sock

    def _hang_up(self) -> None:
        """End the session; earlier messages can still be taken."""
        sock, self._sock = self._sock, None
        self._wants_room = False
        if sock is None:
            return
        if not self._inherited():  # the epoll and the eventfd are the parent's, and still in use
            with Ignoring(OSError, ValueError):
                # A forked child may keep the open file, and with it the registration.
                self._epoll.unregister(sock.fileno())
            self._announce_events()  # wakes a thread that sleeps on `fileno`; it finds it not alive
        with Ignoring(OSError):
            sock.close()

    def _release(self) -> None:
        """End the session for good."""
        self._hang_up()
        close_epoll(self._epoll)
        self._waiting.close()
        while self._events:
            close_all(self._events.popleft()[1])
        while self._arrived:
            close_all(contents(self._arrived.popleft())[1])
        self._posts = Posts()  # another thread may be at the old ones

    # --- exchanges -----------------------------------------------------------------------------

    def _exchange(
        self,
        call: str,
        op: str,
        fds: Sequence[int],
        fields: dict[str, Any],
        deadline: float,
        *,
        brief: bool = False,
    ) -> dict[str, Any]:
        """Send a request, wait for its reply and return it; Lost when the session ends first.

        A time-out or an interruption ends the session, unless the request may be abandoned. A
        `brief` caller undoes its request itself: the session continues, and a time-out is TooLate.
        """
        ident = self._next_id
        self._next_id += 1
        data = encode_request(call, {"op": op, "id": ident, **fields})
        sock = self._sock
        fd = -1 if sock is None else sock.fileno()
        try:
            self._expected |= {ident}
            self._unsure |= {ident}
            self._wake_no_other(fd)
            self._flush_all(call, deadline)
            while not self._send(data, fds):
                self._wait(select.POLLIN | select.POLLOUT, call, deadline)
                self._drain()  # a broker whose events are not taken reads no requests
            self._await_reply(ident, sock, call, deadline)
            reply = self._replies[ident]
            del self._replies[ident]
            self._unsure -= {ident}
        except BaseException as exc:
            late = self._end_exchange(exc, op, sock, brief=brief)
            self._unsure -= {ident}  # not where a second handler raises before
            answer = self._replies.pop(ident, None)
            if late:
                raise too_late(call) from None
            if not isinstance(exc, Lost) or answer is None:
                raise
            reply = answer  # it came before the end of the session
        finally:
            # A handler may raise behind a call: nothing is called before the last step.
            self._expected -= {ident}
            try:
                self._epoll.modify(fd, self._interest)
            except (OSError, ValueError) as exc:
                pass_on(exc)  # the session is over
        return reply

    def _wake_no_other(self, fd: int) -> None:
        """Keep the socket from waking other threads: what arrives is for this one to read."""
        try:
            self._epoll.modify(fd, 0)
        except (OSError, ValueError) as exc:
            pass_on(exc)
            raise Lost from None  # there is none, or another thread has closed the client

    def _await_reply(
        self, ident: int, sock: socket.socket | None, call: str, deadline: float
    ) -> None:
        """Wait until the reply to a request that was sent over `sock` is in `_replies`."""
        while ident not in self._replies:
            # An exchange within this one may have read the reply by now: no long wait.
            self._wait(select.POLLIN, call, deadline, longest=_LONGEST_WAIT)
            self._drain(ident)
            if self._sock is not sock:
                raise Lost  # a call within this one met the loss, and found another broker

    def _end_exchange(
        self, exc: BaseException, op: str, sock: socket.socket | None, *, brief: bool
    ) -> bool:
        """End the session after an exchange that failed, unless it may continue without the reply.

        Return whether a brief caller ran out of time.
        """
        interrupted = is_interruption(exc)  # also by a TimeoutError of the handler's own
        timed_out = isinstance(exc, NdError) and exc.status is Status.IO_TIMEOUT
        late = brief and timed_out and not interrupted
        abandoned = interrupted and (brief or self._may_abandon(op))
        if self._sock is sock and not (late or abandoned):
            # Whether the broker did it is unknown now; a new session makes it known.
            self._hang_up()
        return late

    def _may_abandon(self, op: str) -> bool:
        """Return whether the session may continue without the reply, which is dropped later."""
        return op in _ABANDONED

    def _submit(self, call: str, op: str, fds: Sequence[int], fields: dict[str, Any]) -> int:
        """Send a request whose reply becomes an event; return its number, or 0 without room now."""
        ident = self._next_id
        self._next_id += 1
        data = encode_request(call, {"op": op, "id": ident, **fields})
        self._asked.add(ident)  # first: an exchange within this one may read the reply
        sent = False
        try:
            sent = not (self._posts and not self._flush()) and self._send(data, fds)
        finally:
            if not sent:
                self._asked.discard(ident)
        return ident if sent else 0

    def _send(self, data: bytes, fds: Sequence[int] = (), noted: deque[int] | None = None) -> bool:
        """Send one datagram; return False when there is no room for it now.

        Once it is sent, its length is appended to `noted`.
        """
        sock = self._sock
        if sock is None:
            raise Lost
        try:
            send(sock, data, fds, noted)
        except BlockingIOError:
            return False
        except ConnectionError:
            # It is gone, but what it sent before can still be read.
            self._drain()
            raise Lost from None
        except OSError as exc:
            pass_on(exc)
            if self._sock is not sock:
                raise Lost from None
            text = f"cannot send to {self.path}: {exc}"
            raise error(Status.INSUFFICIENT_RESOURCES, "broker", text) from exc
        return True

    def _drain(self, until: int = 0) -> None:
        """Take all datagrams that are there, or those up to a reply. Lost where the session ends.

        A handler of a signal, or a finaliser, may call within this, and raise. So a datagram stays
        the first of `_arrived` until all that it changes is changed, by statements that call
        nothing. A call within this one takes that datagram first, and this one leaves it then.
        """
        while until not in self._replies:
            if not self._arrived and not self._read():
                return
            arrived = self._arrived[0] if self._arrived else None
            if arrived is None:
                continue  # a call within this one took it
            bad = False
            events: list[EventWithFds] = []
            replies: dict[int, dict[str, Any]] = {}
            answered: set[int] = set()
            try:
                unused = self._sort(arrived, events, replies, answered)
            except BadMessage:  # whatever it is, it is not a broker of ours
                bad, unused = True, contents(arrived)[1]
            if not self._arrived or self._arrived[0] is not arrived:
                continue
            if not bad:
                self._events += events
                self._replies |= replies
                self._asked -= answered
            del self._arrived[0]
            if unused:
                close_all(unused)
            if bad or not arrived[0]:
                raise Lost

    def _read(self) -> bool:
        """Receive one more datagram; return False if there is none."""
        sock = self._sock
        if sock is None:
            raise Lost
        try:
            receive_into(self._arrived, sock)
        except BlockingIOError:
            return False
        except OSError as exc:
            pass_on(exc)
            raise Lost from None
        return True

    def _sort(
        self,
        arrived: Arrived,
        events: list[EventWithFds],
        replies: dict[int, dict[str, Any]],
        answered: set[int],
    ) -> list[int]:
        """Add the events and awaited replies of a datagram to the arguments; change nothing else.

        Return the descriptors that no message takes.
        """
        data, fds, cut = contents(arrived)
        unused = list(fds) if cut else []
        rest = [] if cut else fds
        for text in split(data) if data else ():
            message = decode(text)
            if "ev" not in message and message.get("re") in self._asked:
                answered.add(message["re"])
                message["ev"] = "answer"
            if "ev" in message:
                if cut:
                    message["fds_lost"] = True
                if message["ev"] == "peer" and self._broker_user not in (0, os.geteuid()):
                    message.update(same_user=False, one_user=False)
                events.append((message, rest))
                rest = []
            else:
                # 0: turned away before anything was read. Late replies are dropped.
                replies |= {
                    ident: message for ident in self._expected if message.get("re") in (ident, 0)
                }
        return unused + rest

    def _wait(self, what: int, call: str, deadline: float, *, longest: float = math.inf) -> None:
        """Wait for the socket, at most `longest` seconds; IO_TIMEOUT at the deadline."""
        sock = self._sock
        if sock is None:
            raise Lost
        poll = select.poll()
        try:
            poll.register(sock, what)
        except ValueError as exc:
            pass_on(exc)
            raise Lost from None  # another thread has closed the client
        # Poll once in any case: a process that was stopped itself finds its answer waiting.
        left = max(0.0, deadline - time.monotonic())
        if not poll.poll(min(left, longest) * 1000) and left <= longest:
            raise self._no_answer(call)

    def _no_answer(self, call: str) -> NdError:
        return no_answer(call, self.path, self._broker_pid, self._timeout)

    # --- posts and events ----------------------------------------------------------------------

    def _flush_all(self, call: str, deadline: float) -> None:
        """Send the posts that wait, before something that follows them. With the lock."""
        while not self._flush():
            self._wait(select.POLLIN | select.POLLOUT, call, deadline)
            self._drain()

    def _flush_when_free(self) -> None:
        """Send the posts that wait, unless another thread has the lock: it will do so then."""
        while (self._posts or self._wants_room) and take_lock(self._lock, 0.0):
            try:
                if self._posts.flushing:
                    return  # this thread is at it already, further down its stack
                done = self._flush()
                if done == self._wants_room:
                    self._want_room(not done)
                if self._posts.too_many:
                    raise Lost
            except (Lost, NdError):
                self._hang_up()
                self._posts.clear()
                return
            finally:
                self._lock.release()
            if not done:
                return

    def _flush(self) -> bool:
        """Send posts as `Posts.flush` does; return False if posts are left for lack of room."""
        return self._posts.flush(lambda post, sent: self._send(post, noted=sent))

    def _want_room(self, wanted: bool) -> None:
        """Become readable for the owner when posts can be sent again."""
        sock = self._sock
        if sock is not None and wanted != self._wants_room:
            self._interest = select.EPOLLIN | (select.EPOLLOUT if wanted else 0)
            with Ignoring(OSError, ValueError):  # closed by another thread
                self._epoll.modify(sock.fileno(), self._interest)
            self._wants_room = wanted

    def _announce_events(self) -> None:
        self._waiting.add()
        self._announced = True  # last: the events are in place

    def _take_events(self) -> list[EventWithFds]:
        if self._announced:
            self._announced = False
            self._waiting.drain()
        # The last steps call nothing: what a handler raises behind a call would lose the events.
        taken = [*self._events]
        self._events *= 0  # the same object: polls look into it
        return taken
