# SPDX-License-Identifier: Apache-2.0
"""The client of a broker: one per process and namespace, for all its threads.

A call is one exchange and waits for its reply, with a bound. Events that come meanwhile are kept
for `events()`. When the broker is gone, the next call finds or starts another one, lets the owner
of this client report to it what the process holds (`on_reconnect`), and then continues. The same
happens after a call whose outcome is unknown, as it timed out or was interrupted: a new session and
a replay leave no doubt about what the broker believes. An interrupted request that is harmless, or
that its caller undoes by a post, ends no session: its reply is dropped.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from shmnd.broker.access import caller_at
from shmnd.broker.lock import take_lock
from shmnd.broker.place import place_of
from shmnd.broker.protocol import VERSION, PassedFd, encode
from shmnd.broker.session import EventWithFds, Lost, Session
from shmnd.broker.spawn import IDLE_SECONDS, START_SECONDS, reach
from shmnd.common.brief_waits import too_late
from shmnd.common.descriptors import refuse_closed
from shmnd.common.held import Attempted
from shmnd.common.steps import step
from shmnd.status import NdError, Status, error, renamed

__all__ = ["CALL_SECONDS", "BrokerClient"]

CALL_SECONDS: Final = 5.0
"""How long a call waits for its reply."""

_ATTEMPTS: Final = 5
"""Brokers that may die during one call or one replay."""


class BrokerClient(Session):
    """A process's session with the broker of a namespace, renewed as often as needed.

    `key` are 32 hexadecimal digits that no other process has; the name of this process is made of
    them (`protocol.name_of`), whatever broker is there. `on_reconnect` is called with this client,
    in the thread that met the loss, whenever a new broker needs the state of the process; it
    uses `call` as usual. NdError says why no broker could be reached.
    """

    def __init__(
        self,
        namespace: str | None = None,
        *,
        key: str,
        base: str | None = None,
        group: int | str | None = None,
        on_reconnect: Callable[[BrokerClient], None] | None = None,
        idle: float = IDLE_SECONDS,
        timeout: float = CALL_SECONDS,
    ) -> None:
        self.on_reconnect = on_reconnect
        self.broker = ""
        """Names the broker of this session."""
        self._key = key
        self._idle = idle
        self._replaying = threading.Lock()
        """Held for the time of a replay: a guard releases it, wherever an interruption comes."""
        self._closed = False
        with contextlib.ExitStack() as undo:
            self._pidfd = PassedFd.of(os.pidfd_open, os.getpid())
            undo.callback(self._pidfd.close)
            super().__init__(place_of(namespace, base, group), timeout)
            undo.callback(self._release)
            self._connect(holds=False)
            undo.pop_all()

    # --- what any thread may call --------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether there is a session: False from the loss of the broker until the next one."""
        # Nor where the handler of a signal has ended an exchange, and a second one its clean-up.
        return self._sock is not None and self._unsure <= self._expected

    def fileno(self) -> int:
        """Return a descriptor that is readable when `events()` has something to do."""
        return self._epoll.fileno()

    def call(
        self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Ask the broker and return its reply; NdError when that is not a success.

        Descriptors are borrowed. `caller` names the call of the interface in the message. A
        broker that is gone is replaced; one that does not answer in time is IO_TIMEOUT.
        """
        call = caller or f"broker {op}"
        self._enter(call, time.monotonic() + self._timeout)
        try:
            reply = self._exchange_somehow(call, op, fds, fields)
        finally:
            self._lock.release()
            self._after_leaving()
        return _succeeded(call, reply)

    def call_by(
        self, until: float, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Ask the broker as `call` does and return its reply; TooLate when `until` comes first.

        The session continues after TooLate, so the broker may still carry out the request, unless
        the caller undoes it by a post. A broker that is gone is not replaced; that is TooLate too.
        """
        call = caller or f"broker {op}"
        until = min(until, time.monotonic() + self._timeout)
        self._require_own()
        if not take_lock(self._lock, until - time.monotonic()):
            raise too_late(call)
        try:
            if not self.alive:
                raise too_late(call)
            reply = self._exchange(call, op, fds, fields, until, brief=True)
        except Lost:
            raise too_late(call) from None
        finally:
            self._lock.release()
            self._after_leaving()
        return _succeeded(call, reply)

    def ask(self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any) -> int:
        """Ask the broker and do not wait; return the number of the request, or 0.

        The reply comes as an event `answer` whose `re` is that number, before any event that
        follows from the request; none comes when the session ends first. 0: nothing was asked,
        because there is no broker, or no room for the request now.
        """
        call = caller or f"broker {op}"
        self._enter(call, time.monotonic() + self._timeout)
        try:
            return self._submit(call, op, fds, fields) if self.alive else 0
        except Lost:
            self._hang_up()
            return 0
        finally:
            self._lock.release()
            self._after_leaving()

    def post(self, op: str, fds: Sequence[int] = (), **fields: Any) -> None:
        """Send a message that needs no reply: never waits, and never raises for the broker.

        It is sent before anything that is called later. With no broker there, nothing is lost
        by dropping it: the state is replayed to the next one.
        """
        if fds:
            raise ValueError("a post carries no descriptors; they might be closed before it goes")
        if not self.alive or self._closed or self._inherited():
            return
        self._posts.append(encode({"op": op, **fields}))
        # May run in a finaliser within a call: the thread that has the lock sends it too.
        self._flush_when_free()

    def events(self) -> list[EventWithFds]:
        """Return the events that have come, oldest first, without waiting.

        Their descriptors belong to the caller. An event whose descriptors were lost, because none
        was free in this process, has `"fds_lost": True` and no descriptors.
        """
        if self._closed or self._inherited():
            return []
        try:
            if take_lock(self._lock, 0.0):
                try:
                    if self.alive:
                        self._drain()
                    elif self._sock is not None and not self._expected:
                        self._hang_up()  # interrupted twice: it would stay readable
                except Lost:
                    self._hang_up()
                finally:
                    self._lock.release()
            # Else another thread is in a call, and collects them meanwhile.
            self._flush_when_free()
            return self._take_events()
        except BaseException:
            # The handler of a signal has raised. The next call takes the messages that were read
            # by then, for which the socket wakes no thread again.
            self._announce_events()
            raise

    def broker_runs(self) -> bool:
        """Return whether a broker takes connections now; never waits, never starts one."""
        try:
            sock = self._place.connect()
        except NdError:
            return False
        if sock is None:
            return False
        sock.close()
        return True

    def reconnect(self) -> None:
        """Find or start another broker, if this one is gone, and replay the state to it."""
        self._enter("broker reconnect", time.monotonic() + START_SECONDS)
        try:
            self._ready()
        finally:
            self._lock.release()
            self._after_leaving()

    def close(self) -> None:
        """Close the connection; the broker forgets this process. Safe twice, and in a forked child.

        In a child it closes the child's copies alone, and takes no lock, which another thread
        may have held at the fork.
        """
        self._closed = True
        self._release()
        self._pidfd.close()

    # --- sessions ------------------------------------------------------------------------------

    def _enter(self, call: str, deadline: float) -> None:
        """Take the lock. Its release follows in any case, and nothing before it.

        A signal handler may raise wherever a function of Python begins.
        """
        self._require_own()  # in a forked child no thread may be left to release it
        if not take_lock(self._lock, deadline - time.monotonic()):
            raise self._no_answer(call)

    def _after_leaving(self) -> None:
        """Send the posts, and announce the events, that came while this thread had the lock."""
        if self._posts or self._wants_room:
            self._flush_when_free()
        if self._events or self._arrived:
            self._announce_events()

    def _require_own(self) -> None:
        if self._closed or self._inherited():
            why = "belongs to the parent process" if self._inherited() else "is closed"
            raise error(Status.DEVICE_REMOVED, "broker", f"the session with {self.path} {why}")

    def _ready(self) -> None:
        """Begin a new session, with a replay, unless the present one is alive."""
        for _ in range(_ATTEMPTS + 1):
            if self.alive:
                return
            self._require_own()
            if self._replaying.locked():
                raise Lost  # the replay starts again from the beginning
            try:
                self._hang_up()  # a session in doubt may be there
                self._connect(holds=True)
                self._replay()
            except Lost:
                continue
            except BaseException:
                self._hang_up()  # a part of it is worse than nothing
                raise
        raise self._keeps_leaving("broker reconnect")

    def _may_abandon(self, op: str) -> bool:
        return not self._replaying.locked() and super()._may_abandon(op)

    def _replay(self) -> None:
        with Attempted(self._replaying):
            if self.on_reconnect is not None:
                self.on_reconnect(self)
            deadline = time.monotonic() + self._timeout
            self._exchange("broker holds", "holds", (), {"done": True}, deadline)

    def _connect(self, *, holds: bool) -> None:
        """Open a session with the broker; try again when that was just about to leave."""
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
                self._require_ours(sock)
                self._begin(sock)
                until = min(deadline, time.monotonic() + self._timeout)
                fds = (self._pidfd.fileno(),)
                reply = self._exchange("open_adapter", "hello", fds, hello, until)
            except Lost:
                if time.monotonic() >= deadline:
                    raise self._no_answer("open_adapter") from None
                time.sleep(0.002)
                continue
            except BaseException as exc:
                self._hang_up()
                sock.close()
                refuse_closed("open_adapter", exc)
                raise
            status = reply["status"]
            if status:
                self._hang_up()
                raise error(status, "open_adapter", f"broker at {self.path}: {reply['message']}")
            self.broker = reply["broker"]
            step("hello-sent")
            return

    def _require_ours(self, sock: socket.socket) -> None:
        caller = caller_at(sock)
        self._broker_pid, self._broker_user = caller.pid, caller.uid
        if not self._place.access.admits(caller):
            raise error(
                Status.ACCESS_VIOLATION,
                "open_adapter",
                f"the broker at {self.path} runs as uid {caller.uid}, which this process does not"
                f" trust: it is {self._place.access}",
            )

    def _exchange_somehow(
        self, call: str, op: str, fds: Sequence[int], fields: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the reply of this broker, or of the next one if this one ends before it answers.

        A request that the old broker had carried out is undone by its end, or by the end of the
        session; so the next broker may carry it out again.
        """
        for _ in range(_ATTEMPTS):
            try:
                self._ready()
            except NdError as err:
                raise _named(call, err) from err.__cause__
            try:
                return self._exchange(call, op, fds, fields, time.monotonic() + self._timeout)
            except Lost:
                if self._replaying.locked():
                    raise
        raise self._keeps_leaving(call)

    def _keeps_leaving(self, call: str) -> NdError:
        return error(
            Status.DEVICE_NOT_READY,
            call,
            f"the broker at {self.path} ended {_ATTEMPTS} times during the call",
        )


def _succeeded(call: str, reply: dict[str, Any]) -> dict[str, Any]:
    """Return a reply; NdError when it is not a success."""
    if reply["status"]:
        raise error(reply["status"], call, reply["message"])
    return reply


def _named(call: str, err: NdError) -> NdError:
    """Return the error of a new session, which says `open_adapter`, as one of another call."""
    return renamed(err, call) if str(err).startswith("open_adapter: ") else err
