# SPDX-License-Identifier: Apache-2.0
"""A connection that carries messages, and shows every object that it consists of.

`messages.pyx` moves the messages; `Connection` waits for them. Names and behaviour are those of
`multiprocessing.connection.Connection` where both have them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from shmnd.broker.protocol import written
from shmnd.common.closing import Closing, made_by
from shmnd.common.deadline import end_of, left_until
from shmnd.common.held import Condition, Held
from shmnd.common.interruption import pass_on
from shmnd.common.late import asyncio
from shmnd.common.weak import without_owner
from shmnd.messaging.buffers import outgoing, writable
from shmnd.messaging.copying import Copied
from shmnd.messaging.errors import ended, refused
from shmnd.messaging.exits import remember
from shmnd.messaging.loops import MessageLoop
from shmnd.messaging.turns import SendTurns
from shmnd.status import OWN_IN_CHILD, NdError, Status
from shmnd.waiter import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmnd.adapter import Adapter
    from shmnd.completion_queue import CompletionQueue
    from shmnd.connector import Connector
    from shmnd.memory_region import MemoryRegion
    from shmnd.messaging.endpoints import Ends, SharedAdapter
    from shmnd.messaging.fragments import Outgoing
    from shmnd.overlapped import Overlapped
    from shmnd.queue_pair import QueuePair
    from shmnd.ring.interfaces import AnyBuffer

__all__ = ["Connection"]


@made_by("shmnd.connect")
class Connection(Closing):
    """One end of a connection, from `shmnd.connect` or `Server.accept`.

    It owns `.adapter`, `.qp`, `.cq`, `.connector`, `.region` and `.memory`, which is registered for
    the program's own requests. Those complete on `.cq`, where messages never appear: these have
    memory and a queue of receives of their own.

    One thread may send while another one receives, but not threads and an event loop.
    """

    def __init__(self, shared: SharedAdapter, ends: Ends) -> None:
        self._refusal = "the connection is not made"  # until all is, and again from its end on
        self._released = True  # there is nothing to close
        self._shared: Final = shared
        self.adapter: Final[Adapter] = shared.adapter
        """The adapter; a server's connections share the server's."""
        self.qp: Final[QueuePair] = ends.qp
        """The queue pair."""
        self.cq: Final[CompletionQueue] = ends.cq
        """The queue on which the program's own requests on `.qp` complete, except Receives."""
        self.receive_cq: Final[CompletionQueue] = ends.receive_cq
        """The queue on which Receives complete; messages arrive through it."""
        self.connector: Final[Connector] = ends.connector
        """The connector."""
        self.region: Final[MemoryRegion] = ends.region
        """The registration of `.memory`."""
        self.memory: Final = ends.memory
        """Shared memory for the program's own use, a numpy array of bytes."""
        self.peer_address: Final[tuple[str, int]] = ends.connector.get_peer_address()
        """The address of the other end."""
        self.local_address: Final[tuple[str, int]] = ends.connector.get_local_address()
        """The address of this end."""
        self.remote_address: Final[int] = ends.theirs.address
        """The address of the peer's `.memory` in the peer, for Read and Write."""
        self.remote_token: Final[int] = ends.theirs.token
        """The token of the peer's `.memory`, for Read and Write."""
        self.remote_length: Final[int] = ends.theirs.length
        """The bytes of the peer's `.memory`."""
        self._ends: Final = ends
        self._messages: Final = ends.messages
        self._inbox: Final = ends.messages.inbox
        self._send_now: Final = ends.messages.send_now
        self._disconnected: Final = ends.connector.notify_disconnect()
        self._notification: Overlapped | None = None
        self._waiter: Waiter | None = None
        self._start_locks()
        remember(self)
        shared.take(self)
        self._refusal, self._released = "", False  # last: half-made, it closes nothing

    def _start_locks(self) -> None:
        self._lock = lock = threading.RLock()
        self._changed = changed = Condition(lock)
        self._turns = SendTurns()

        def wake() -> None:
            with Held(lock):
                changed.notify_all()

        self._messages.wake = wake

    # -- state --

    @property
    def closed(self) -> bool:
        """Whether this end is closed."""
        return bool(self._refusal)

    @property
    def connected(self) -> bool:
        """Whether neither side has closed and the peer lives."""
        return not (self._refusal or self._messages.ended or self._disconnected.done())

    def __repr__(self) -> str:
        state = "closed" if self.closed else "connected" if self.connected else "disconnected"
        ends = f"{written(self.local_address)} to {written(self.peer_address)}"
        unread = f"{len(self._inbox)} messages unread"
        return f"<Connection {state} {ends}, {self._messages!r}, {unread}>"

    # -- blocking --

    def send_bytes(self, data: AnyBuffer, timeout: float | None = None) -> None:
        """Send a message of any length; wait while the peer has no room for it.

        TimeoutError when `timeout` seconds end first: nothing of the message is delivered then.
        While it waits it takes the peer's messages, so both sides may send at the same time.
        BrokenPipeError when the peer has closed, ConnectionResetError when it died.
        """
        if not self._send_now(data, timeout):
            self._send_in_steps(data, timeout, "Connection.send_bytes")

    def _send_in_steps(self, data: AnyBuffer, timeout: float | None, call: str) -> None:
        out = outgoing(data, call)
        end = end_of(timeout, call)
        self._check_events(call)
        with self._turns.of_thread(call, left_until(end)) as ours:
            if not ours:
                raise self._late(call, "another message was being sent")
            try:
                self._messages.busy = True
                if not self._wait(lambda: self._pushed(out, call), end):
                    raise self._late(call, _NO_ROOM)
            finally:
                self._messages.busy = False

    def recv_bytes(self, timeout: float | None = None, *, maxlength: int | None = None) -> bytes:
        """Wait for a message and return it.

        EOFError when the peer has closed and all messages were taken, ConnectionResetError when
        it died, TimeoutError when `timeout` seconds end first, OSError when the message is longer
        than `maxlength`: it stays, and the next call may take it.
        """
        call = "Connection.recv_bytes"
        if maxlength is None:
            messages = self._messages
            try:
                messages.patience = timeout
                for message in messages:
                    return message
            except NdError:
                if not self._refusal:
                    raise  # else another thread has closed this connection
            else:
                if messages.late:
                    raise self._late(call, _NOTHING)
        return self._next(timeout, maxlength, call)

    def recv_into(self, buffer: AnyBuffer, timeout: float | None = None) -> int:
        """Wait for a message and copy it to a buffer; return its length.

        `multiprocessing.BufferTooShort`, with the message as its argument, when it does not fit.
        """
        call = "Connection.recv_into"
        try:
            copied = Copied(self._messages, buffer, timeout)
            for nbytes in copied:
                return nbytes
        except NdError:
            if not self._refusal:
                raise  # else another thread has closed this connection
        else:
            if copied.late:
                raise self._late(call, _NOTHING)
        target = writable(buffer, call)
        message = self._next(timeout, None, call)
        try:
            nbytes = len(message)
            if nbytes <= target.nbytes:
                target[:nbytes] = message
                return nbytes
        except BaseException:  # of the handler of a signal: nothing was received
            self._inbox.appendleft(message)
            raise
        from multiprocessing import BufferTooShort

        raise BufferTooShort(message)

    def poll(self, timeout: float | None = 0) -> bool:
        """Return whether `recv_bytes` would return, or raise, at once; wait that long for it."""
        call = "Connection.poll"
        end = end_of(timeout, call)
        try:
            return self._wait(lambda: self._arrived(call), end)
        except (EOFError, ConnectionResetError) as exc:
            pass_on(exc)
            return True

    def __iter__(self) -> MessageLoop:
        """Return the messages as they arrive, until the peer closes."""
        return MessageLoop(self)

    # -- asyncio --

    async def asend_bytes(self, data: AnyBuffer, timeout: float | None = None) -> None:
        """Send a message as `send_bytes` does, and let other tasks run meanwhile."""
        if self._send_now(data):
            return
        call = "Connection.asend_bytes"
        out, end = outgoing(data, call), end_of(timeout, call)
        self._check_events(call)
        try:
            async with asyncio.timeout(left_until(end)), self._turns.of_loop():
                with self._turns.of_task(call):
                    try:
                        self._messages.busy = True
                        await self._wait_in_loop(lambda: self._pushed(out, call))
                    finally:
                        self._messages.busy = False
        except TimeoutError as exc:
            pass_on(exc)
            raise self._late(call, _NO_ROOM) from None

    async def arecv_bytes(
        self, timeout: float | None = None, *, maxlength: int | None = None
    ) -> bytes:
        """Return the next message as `recv_bytes` does, and let other tasks run meanwhile."""
        call = "Connection.arecv_bytes"
        try:
            if not self._arrived(call):
                async with asyncio.timeout(left_until(end_of(timeout, call))):
                    await self._wait_in_loop(lambda: self._arrived(call))
        except TimeoutError as exc:
            pass_on(exc)
            raise self._late(call, _NOTHING) from None
        return self._next(0, maxlength, call)

    def __aiter__(self) -> MessageLoop:
        """Return the messages as they arrive, until the peer closes."""
        return MessageLoop(self)

    async def _wait_in_loop(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self._messages.progress()
            if ready():
                return
            try:
                if self._notification is None or self._notification.done():
                    self._notification = self.receive_cq.notify()
                    self._messages.progress()  # a message may have arrived before the Notify
                    continue
                await self._notification
            except NdError as err:
                if err.status is not Status.CANCELED and not self._refusal:
                    raise  # else another task or thread has closed this connection

    # -- descriptors --

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll()` may return True.

        For `select`, selectors, event loops and `multiprocessing.connection.wait`. It may be
        readable where nothing has arrived, since only a poll can decide: ask `poll()` before a
        `recv_bytes` that shall not wait. A poll that finds nothing asks for the next message.
        """
        if self._refusal:
            raise refused("Connection.fileno", self._refusal)
        if self._waiter is None:
            self._waiter = Waiter(self.adapter, self._readable)
            self._messages.watch = without_owner(self._watch)
        number = self._waiter.fileno()
        self._watch()
        return number

    def _readable(self) -> bool:
        return bool(self._refusal) or self._messages.ready()

    def _watch(self) -> None:
        """Ask for the next message after a poll, and make the descriptor readable if some came."""
        waiter = self._waiter
        if waiter is None or self._refusal:
            return
        if self._notification is None or self._notification.done():
            self._notification = notification = self.receive_cq.notify()
            notification._waiters.append(waiter.wake)
        waiter.rest()

    # -- steps --

    def _check_events(self, call: str) -> None:
        """Take the arrived messages, without waiting. Raise when none can be sent any more."""
        if self._refusal:
            raise refused(call, self._refusal)
        self._messages.progress()
        if self._messages.goodbye or self._messages.ended:
            raise self._ended(call, sending=True)

    def _pushed(self, out: Outgoing, call: str) -> bool:
        """Send as much as the peer has room for; return whether the whole message is sent."""
        if self._refusal:
            raise refused(call, self._refusal)
        if self._messages.goodbye or self._messages.ended:
            raise self._ended(call, sending=True)
        return self._messages.push(out)

    def _arrived(self, call: str) -> bool:
        """Return whether a message is there. EOFError or ConnectionResetError if none will come."""
        if self._refusal:
            raise refused(call, self._refusal)
        if self._inbox:
            return True
        if self._messages.goodbye or self._messages.ended:
            raise self._ended(call, sending=False)
        return False

    def _next(self, timeout: float | None, maxlength: int | None, call: str) -> bytes:
        """Wait for the next message and return it; one that is too long stays in the inbox."""
        end = end_of(timeout, call)
        while True:
            if not self._wait(lambda: self._arrived(call), end):
                raise self._late(call, _NOTHING)
            if not self._inbox:
                continue  # another thread took it
            message = self._inbox[0]
            if maxlength is not None and len(message) > maxlength:
                raise OSError(
                    f"{call}: the message has {len(message)} bytes, more than maxlength "
                    f"{maxlength}; receive it with a larger one"
                )
            if self._inbox and self._inbox[0] is message:  # else another thread took it
                del self._inbox[0]
                return message

    def _wait(self, ready: Callable[[], bool], end: float) -> bool:
        """Wait until `ready` returns True; return False when the time ends first.

        One thread waits for the queue; the others wait for that thread.
        """
        messages = self._messages
        while not ready():
            left = left_until(end)
            if messages.pumping:
                self._follow(left)
            else:
                try:
                    messages.pump(left)
                except NdError:
                    if not self._refusal:
                        raise  # else another thread has closed this connection
            if left == 0:
                return ready()
        return True

    def _follow(self, left: float | None) -> None:
        """Wait until the thread that waits for the queue has taken a message, or stops."""
        with Held(self._lock):
            self._messages.followers += 1
            try:
                if self._messages.pumping:
                    self._changed.wait(left)
            finally:
                self._messages.followers -= 1

    # -- errors --

    def _ended(self, call: str, *, sending: bool) -> OSError | EOFError:
        reason = "" if self._messages.goodbye else self._messages.ended
        return ended(call, written(self.peer_address), reason, sending=sending)

    def _late(self, call: str, why: str) -> TimeoutError:
        return TimeoutError(f"{call}: the time-out ended; {written(self.peer_address)} {why}")

    # -- the end --

    def close(self) -> None:
        """Close this end. The peer receives every message sent, then EOFError. Harmless when
        repeated. Threads that wait in a call get OSError.
        """
        if self._released:
            return  # else an interrupted close is continued
        with Held(self._lock):
            if not self._refusal:
                self._refusal = "the connection is closed"
                # Said once: no handler of a signal runs between the two.
                if not self._messages.ended:
                    self._messages.say_goodbye()
        self._messages.refuse()
        if self._waiter is not None:
            self._waiter.close()
        self._ends.close()
        with Held(self._lock):
            self._changed.notify_all()
        self._shared.give_back(self)
        self._released = True

    def _end_in_child(self) -> None:
        """Refuse all calls after fork: the connection belongs to the parent."""
        self._start_locks()
        self._messages.refuse()
        self._refusal = self._refusal or f"the connection {OWN_IN_CHILD}"
        self._released = True


_NO_ROOM: Final = "takes no messages now: it has not received the earlier ones"
_NOTHING: Final = "has sent no message"
