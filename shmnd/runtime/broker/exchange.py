# SPDX-License-Identifier: Apache-2.0
"""The exchange of a process with the broker: requests, and the tables that its events change.

`rpc` is held while this process asks the broker, and while the broker's messages are sorted; no
method of an object is called under it. An event that concerns the tables of peers, doorbells or
names changes them at once. All others wait in the event queue for their connector or listener.
"""

from __future__ import annotations

import abc
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from shmnd.broker.session import Lost
from shmnd.broker.untaken import close_all
from shmnd.common.brief_waits import TooLate, brief_until, refuse_brief_wait
from shmnd.common.held import Attempted, Held, InTime
from shmnd.common.interruption import is_interruption, pass_on
from shmnd.common.steps import step
from shmnd.runtime.broker.events import EventDispatch, EventTarget
from shmnd.runtime.broker.state import BrokerState
from shmnd.runtime.doorbells import Doorbells
from shmnd.runtime.peers import Peers
from shmnd.status import Status, error

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from shmnd.runtime.broker.announcements import Names
    from shmnd.runtime.broker.meetings import Meetings
    from shmnd.runtime.interfaces import BrokerLike, DataPlaneLike, Event, PeerLike, SegmentOwner
    from shmnd.runtime.pending import PendingOperations
    from shmnd.runtime.waiting import WaitSet

__all__ = ["BrokerExchange"]

_MOST_ASKED: Final = 1024
"""Requests without an answer, beyond which a request waits for it."""
_SORTING_SECONDS: Final = 0.001
"""How long a poll waits for another thread that sorts messages of the broker. Without the wait it
would poll again and again until they are read, and keep that thread from running."""
_INTRODUCTIONS: Final = ("peer", "segment")
"""Events whose descriptors are taken out of them, so that they cannot be sorted again."""
_LOG: Final = logging.getLogger("shmnd.broker")


class BrokerExchange(EventDispatch):
    """The requests to the broker and the state that its messages keep up to date."""

    alive: bool
    client: BrokerLike
    names: Names
    meetings: Meetings

    def __init__(
        self, wait_set: WaitSet, data_plane: DataPlaneLike, pending_operations: PendingOperations
    ) -> None:
        super().__init__(wait_set)
        self.broker_state: Final = BrokerState()
        self.rpc = threading.RLock()
        """Held while the broker is asked. A thread that changes the broker state by the reply holds
        it over both, so that a replay finds either neither or both."""
        self._peers = Peers(data_plane, wait_set)
        self._doorbells = Doorbells(wait_set, pending_operations, self._ask_for_doorbell)
        self._unheard: dict[str, object] = {}
        """Adapters of which descriptors were lost, with a mark for the last loss of each."""
        self._inbox: deque[tuple[Event, list[int]]] = deque()
        self._begun: Event | None = None  # the last one whose sorting was begun
        self._sorting = threading.Lock()  # a guard releases it, wherever an interruption comes

    @abc.abstractmethod
    def check(self, call: str) -> None:
        """Raise DEVICE_REMOVED after the end, and in a process that was forked off."""

    # -- requests --

    def call(
        self, op: str, fds: Sequence[int] = (), *, caller: str = "", **fields: Any
    ) -> dict[str, Any]:
        """Ask the broker and return its reply; raise NdError, naming `caller`, for an error reply.

        A broker that is gone is replaced first, and this process reports to the next one what it
        holds. A signal handler or a finaliser that calls during the report cannot replace a broker.
        """
        self.check(caller or op)
        with Held(self.rpc):
            try:
                return self.client.call(op, fds, caller=caller, **fields)
            except Lost:
                text = (
                    "the broker went away while the call that this one interrupts renewed the "
                    "session; call again when that has returned"
                )
                raise error(Status.DEVICE_NOT_READY, caller or f"broker {op}", text) from None

    def conversing(self, call: str) -> AbstractContextManager[Any]:
        """Return `rpc` for a `with` block; TooLate if it is not free and waits are brief."""
        until = brief_until()
        return Held(self.rpc) if until is None else InTime(self.rpc, until, call)

    def _call_or_undo(
        self, undo: Callable[[], None], op: str, fds: Sequence[int], caller: str, **fields: Any
    ) -> None:
        """Ask the broker. Call `undo` if that is interrupted, or ends with TooLate."""
        until = brief_until()
        self.check(caller)
        with Held(self.rpc) if until is None else InTime(self.rpc, until, caller):
            try:
                if until is None:
                    self.call(op, fds, caller=caller, **fields)
                else:
                    self.client.call_by(until, op, fds, caller=caller, **fields)
            except BaseException as exc:
                if isinstance(exc, TooLate) or is_interruption(exc):
                    undo()  # before another thread can ask for the same
                raise

    def post(self, op: str, **fields: Any) -> None:
        """Send the broker a message that needs no reply. Never wait and never raise."""
        if self.alive:
            self.client.post(op, **fields)

    def connect(
        self, end: EventTarget, caller: str, bound: Callable[[int], None], **fields: Any
    ) -> int:
        """Ask for a connection and return its number; messages about it go to `end` from then on.

        `bound` takes the local port, before anything else can happen.
        """
        refuse_brief_wait(caller)
        # With the lock, no other thread takes an answer before its request is known.
        with Held(self.rpc):
            reply = self.call("connect", caller=caller, **fields)
            connection: int = reply["connection"]
            bound(reply["port"])
            step("connect-asked")
            self.follow("active", connection, end)
            return connection

    def ask(
        self,
        end: EventTarget,
        op: str,
        fds: Sequence[int] = (),
        *,
        caller: str,
        hold: bool = False,
        **fields: Any,
    ) -> int:
        """Ask the broker and do not wait; return the number of the request, or 0: not asked.

        The answer is an event for `end`. With `hold`, `end` lives until the answer has come, so
        that it receives a refusal. Nothing is asked without a broker, since only `call` finds one,
        nor while so many answers are outstanding that they might fill the broker's queue for this
        process.
        """
        self.check(caller)
        if not self.client.alive or len(self._asking) >= _MOST_ASKED:
            return 0
        # With the lock, no other thread takes the answer before its request is known.
        with self.conversing(caller):
            ident = self.client.ask(op, fds, caller=caller, **fields)
            if ident:
                self.follow_answer(ident, end, hold)
            return ident

    def map_announced(self) -> None:
        """Map the segments that were announced to this process, without waiting for the broker.

        Another thread that maps them is waited for, but only for a moment.
        """
        with Attempted(self.rpc, _SORTING_SECONDS) as free:
            if free:
                self._intake()

    def _sort_rest(self) -> None:
        """Sort the messages that were left by an interrupted exchange or poll."""
        with Attempted(self.rpc) as free:
            if free:
                self._intake()

    def sync(self) -> None:
        """Ask and wait: announced segments are mapped then, and lost introductions repeated."""
        with Held(self.rpc):
            lost = list(self._unheard.items())
            kept = self.call("sync").get("unheard", ())
            self._intake()
            # Within an intake that a handler of a signal interrupted, none of it is sorted yet.
            for adapter, mark in [] if self._sorting.locked() else lost:
                if self._unheard.get(adapter) is mark and adapter not in kept:
                    self._unheard.pop(adapter, None)  # all of it has come
        if self._undelivered:
            self._wait_set.ring()  # the rest is for threads that may sleep

    # -- messages of the broker --

    def _intake(self) -> None:
        """Sort the messages of the broker; tables at once, the rest into the event queue.

        A signal handler or a finaliser that calls during it, in the same thread, leaves
        them to the call that it interrupted. A handler that raises ends it after the last of them,
        or leaves the rest to the next poll.
        """
        with Attempted(self._sorting) as first:
            if first:
                self._sort_all()
        if first and not self.client.alive:
            self._lose_broker()

    def _sort_all(self) -> None:
        interruption: BaseException | None = None
        try:
            self._inbox += self.client.events()  # no call takes them over
            while self._inbox:
                try:
                    self._sort(*self._inbox[0])
                except BaseException as exc:
                    interruption = exc
            if interruption is not None:
                raise interruption
        finally:
            interruption = None  # it refers to this frame

    def _sort(self, event: Event, fds: list[int]) -> None:
        """Sort the first message, and take it out of the inbox as the last step, without a call.

        Where it raises, as the handler of a signal may, the message stays and is sorted again. That
        is harmless for all but introductions, which count as lost then.
        """
        name = event["ev"]
        again, self._begun = self._begun is event, event
        if name not in self._TABLE_EVENTS:
            self._undelivered += ((event, fds),)
        else:
            try:
                if name in _INTRODUCTIONS and (again or event.get("fds_lost")):
                    self._miss(event)
                else:
                    self._TABLE_EVENTS[name](self, event, fds)
                close_all(fds)
            except BaseException as exc:
                if again and not is_interruption(exc):
                    self._inbox.popleft()  # a fault, of which a third time makes nothing better
                raise
        if self._inbox:  # a call within this one may have ended the engine
            del self._inbox[0]

    def _drop_events(self) -> None:
        super()._drop_events()
        while self._inbox:
            close_all(self._inbox.popleft()[1])

    def _miss(self, event: Event) -> None:
        """Note that descriptors of an adapter were lost; the broker repeats them on demand."""
        self._unheard[event["adapter"]] = object()
        self.post("unheard", adapter=event["adapter"], seg=event.get("seg", -1))

    def _doorbell(self, event: Event, fds: list[int]) -> None:
        self._doorbells.take(event["process"], fds)

    def _ask_for_doorbell(self, process: str) -> bool:
        """Ask for a doorbell; return False without a broker: the next one makes new doorbells."""
        if self.client.alive:
            self.post("doorbell_lost", process=process)
            return True
        return False

    def _peer(self, event: Event, fds: list[int]) -> None:
        try:
            self._peers.meet(event, fds)
        except OSError as exc:
            pass_on(exc)
            self._miss(event)  # the system watches no more descriptors for us
        else:
            self.meetings.came(event["adapter"])

    def _segment(self, event: Event, fds: list[int]) -> None:
        try:
            self._peers.add_segment(event, fds)
        except MemoryError:
            self._miss(event)  # this process maps no more

    def _segment_gone(self, event: Event, fds: list[int]) -> None:
        self._peers.remove_segment(event)

    def _adapter_gone(self, event: Event, fds: list[int]) -> None:
        self._peers.forget(event["adapter"])
        self._unheard.pop(event["adapter"], None)

    def _process_gone(self, event: Event, fds: list[int]) -> None:
        for peer in self._peers.hung_up(event["process"]):
            peer.mark_dead()
            self._wait_set.ring()  # unlike a pidfd, nothing stays readable for other sleepers
        self._peers.forget_process(event["process"])

    def _record(self, event: Event, fds: list[int]) -> None:
        self.names.take(event, gone=False)

    def _record_gone(self, event: Event, fds: list[int]) -> None:
        self.names.take(event, gone=True)

    _TABLE_EVENTS: ClassVar[Mapping[str, Callable[[BrokerExchange, Event, list[int]], None]]] = {
        "doorbell": _doorbell,
        "peer": _peer,
        "segment": _segment,
        "segment_gone": _segment_gone,
        "adapter_gone": _adapter_gone,
        "gone": _process_gone,
        "record": _record,
        "record_gone": _record_gone,
    }

    # -- the end of a broker, and the next one --

    def _lose_broker(self) -> None:
        """Let undecided connections fail, because the broker is gone; nothing else changes."""
        _LOG.debug("the broker is gone; established connections do not notice")
        if self._ends:
            self._undelivered.append(({"ev": "broker_lost", "ends": list(self._ends)}, []))

    def on_reconnect(self, client: BrokerLike) -> None:
        """Replay the records of this process to a new broker. The client calls this."""
        _LOG.debug("a broker answers; this process announces itself")
        self._intake()  # the last messages of the old one
        self._lose_broker()
        for number in self.broker_state.replay(client):
            self._undelivered.append(({"ev": "port_lost", "object": number}, []))
        self.names.replay(client)
        self.meetings.replay(client)
        if self._undelivered:
            self._wait_set.ring()

    # -- adapters of this process --

    def register_adapter(self, adapter: SegmentOwner, table: Mapping[str, Any]) -> None:
        """Make an adapter and its segments known."""
        caller = "open_adapter"
        with self.conversing(caller):
            self._call_or_undo(
                lambda: self.post("adapter_close", adapter=adapter.uid),
                "adapter",
                (),
                caller,
                key=adapter._key,
                table=table,
            )
            step("adapter-announced")
            self.broker_state.adapters[adapter.uid] = weakref.ref(adapter), table
        for segment in adapter._segments():
            self.announce_segment(adapter, *segment, caller)

    def announce_segment(
        self,
        adapter: SegmentOwner,
        seg: int,
        size: int,
        fd: int,
        writable: bool,
        caller: str,
        kept: bool = False,
    ) -> None:
        """Share a segment that a call needs with every process connected with its adapter.

        One that is too late, or interrupted, is withdrawn, unless it is `kept`.
        """
        self._call_or_undo(
            lambda: None if kept else self.withdraw_segment(adapter, seg),
            "segment",
            [fd],
            caller,
            adapter=adapter.uid,
            seg=seg,
            size=size,
            writable=writable,
        )
        step("segment-announced")

    def withdraw_segment(self, adapter: SegmentOwner, seg: int) -> None:
        """Withdraw a segment that no call needs any more."""
        self.post("segment_close", adapter=adapter.uid, seg=seg)

    def has(self, adapter: SegmentOwner) -> bool:
        """Return whether an adapter is open, and known to the broker."""
        return adapter.uid in self.broker_state.adapters

    # -- adapters of other processes --

    def peer_adapter(self, uid: str) -> PeerLike | None:
        """Return the record of an adapter of another process, or of this one."""
        return self._peers.get(uid)

    def require_peer(self, uid: str, call: str, gone: Status, name: str) -> PeerLike:
        """Return the record of an adapter. Raise the error that says why there is none."""
        self.require_heard(uid, call)  # also for one that is known: a segment of it may be missing
        peer = self._peers.get(uid)
        if peer is None:
            raise error(gone, call, f"{name} is gone")
        return peer

    def require_heard(self, uid: str, call: str) -> None:
        """Ask the broker to repeat descriptors of an adapter that were lost here.

        INSUFFICIENT_RESOURCES if they are lost again.
        """
        if uid in self._unheard:
            self.sync()  # there may be room by now
        if uid in self._unheard:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                "no descriptor was free for what connects the two processes (ulimit -n), no "
                "address space for it (ulimit -v), or none more could be watched "
                "(fs.epoll.max_user_watches)",
            )
