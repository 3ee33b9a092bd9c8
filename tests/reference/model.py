# SPDX-License-Identifier: Apache-2.0
"""A reference of the interface, in plain Python: what may happen to requests, and what must.

It predicts nothing. It receives the posts and calls of a program, and the results of completion
queues; it knows which of that the interface allows, and says `Violation` at the rest. What depends
on how far the library has come by itself is left open; what must have happened when both sides
have polled long enough is asked for by `Connection.unsettled`.

The whole of it, in a few sentences:

* Requests of a queue pair complete in issue order, its receives too, each with its own context.
* The successful Receives of one side are, in order and byte for byte, the first of the successful
  Sends of the other; all of them, unless a Flush took receives away.
* A request fails only for a fault that it has; CANCELED needs a Flush, or the end of the
  connection; an end needs a call or a fault.
* At rest nothing waits but a Send without a receive. After an end nothing waits at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shmnd import CqNotify, RequestType, Status

__all__ = ["Alarm", "Connection", "Notice", "Queue", "Request", "Shared", "Side", "Violation"]


class Violation(AssertionError):
    """The library did what the interface does not allow, or not what it demands."""


def _nothing() -> None:
    """A request that succeeds has this effect unless it says another."""


@dataclass(eq=False)
class Request:
    """One posted request."""

    number: int
    kind: RequestType
    length: int = 0
    """Bytes to move; of a Receive the room."""
    silent: bool = False
    solicited: bool = False
    must_fail: frozenset[Status] = frozenset()
    """It is wrong: carried out, it ends with one of these."""
    may_fail: set[Status] = field(default_factory=set)
    """Something happened since that may have been too early for it."""
    flushed: int = 0
    """Which Flush was the first that took it in."""
    late: bool = False
    """Posted when the connection was over for certain."""
    effect: Callable[[], None] = _nothing
    """Told that it succeeded: checks what it did."""
    release: Callable[[], None] = _nothing
    """Told that it is over: its memory may be used again."""
    waits_after: int = 0
    """A Send: how many messages its side had seen arrive when it was posted."""
    data: bytes = b""
    clock: float = 0.0

    def __str__(self) -> str:
        silent = " silent" if self.silent else ""
        return f"{self.kind.name} {self.number} of {self.length} bytes{silent}"


@dataclass
class Arrival:
    """A Receive that succeeded."""

    request: Request
    data: bytes
    own_done: int | None
    """How many messages of its own the receiving side knew to be done; None: it cannot tell."""
    notices: list[Notice]
    """Solicited requests to be notified that were outstanding when it was retrieved."""


@dataclass(eq=False)
class Notice:
    """A Notify request."""

    kind: CqNotify
    done: bool = False


@dataclass(eq=False)
class Queue:
    """A completion queue."""

    name: str
    depth: int
    sides: list[Side] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    told: bool = False
    """A Notify completed, and the results of that moment may not all have been retrieved."""

    def most(self) -> int:
        """How many completions it can hold at most, by the requests posted and not retrieved."""
        count = 0
        for side in self.sides:
            if side.initiator_queue is self:
                count += len(side.requests)
            if side.receive_queue is self:
                count += len(side.shared.receives if side.shared else side.receives)
        return count

    def in_use(self) -> int:
        """How many requests its queue pairs can have outstanding."""
        return sum(side.receive_depth + side.initiator_depth for side in self.sides)

    def satisfied(self, status: Status) -> list[Notice]:
        """The notices that a completion with this status must have ended."""
        if any(notice.kind is CqNotify.ANY for notice in self.notices):
            return list(self.notices)
        if status is not Status.SUCCESS and self._asks_for_solicited():
            return list(self.notices)
        return []

    def _asks_for_solicited(self) -> bool:
        return any(notice.kind is CqNotify.SOLICITED for notice in self.notices)


@dataclass(eq=False)
class Alarm:
    """A Notify request of a shared receive queue."""

    may: bool = False
    """Since it was made, fewer receives than the threshold may have been left."""
    must: bool = False
    """And for certain they were."""


@dataclass(eq=False)
class Shared:
    """A shared receive queue."""

    depth: int
    threshold: int = 0
    receives: list[Request] = field(default_factory=list)
    """Posted, and their completions not retrieved."""
    sides: list[Side] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)

    def look(self) -> None:
        """Something changed that decides how few receives are left."""
        under_way = sum(side.other.posted_sends - len(side.arrived) for side in self.sides)
        for alarm in self.alarms:
            alarm.must = alarm.must or len(self.receives) < self.threshold
            alarm.may = alarm.may or len(self.receives) - under_way < self.threshold


class Side:
    """One queue pair."""

    def __init__(
        self,
        name: str,
        receive_queue: Queue,
        initiator_queue: Queue,
        receive_depth: int,
        initiator_depth: int,
        shared: Shared | None = None,
    ) -> None:
        self.name = name
        self.receive_queue = receive_queue
        self.initiator_queue = initiator_queue
        self.receive_depth = receive_depth
        self.initiator_depth = initiator_depth
        self.shared = shared
        self.connection: Connection
        self.other: Side
        self.connected = False
        self.closed = False
        self.requests: list[Request] = []
        self.receives: list[Request] = []
        self.sent: list[Request] = []
        self.arrived: list[Arrival] = []
        self.matched = 0  # messages to this side that were compared with the sent ones
        self.posted_sends = 0
        self.flushes = 0
        self.flushed_receives = False
        self.flush_canceled = 0  # the last Flush that a request ended with CANCELED by
        self.receive_fault: Request | None = None
        self.not_sent: list[Request] = []  # Sends that failed, though they may have gone out
        self.failed = False  # a request of its own had a fault
        self.remote_error = False
        receive_queue.sides.append(self)
        if initiator_queue is not receive_queue:
            initiator_queue.sides.append(self)
        if shared is not None:
            shared.sides.append(self)

    def leave(self) -> None:
        """It is forgotten; its queues continue."""
        for queue in {self.receive_queue, self.initiator_queue}:
            queue.sides.remove(self)
        if self.shared is not None:
            self.shared.sides.remove(self)

    # -- what a call may give --

    def may_post(self, kind: RequestType, resting: bool) -> set[Status]:
        """What a well-formed post may give. `resting`: nothing has happened since a rest."""
        if self.closed or (kind is not RequestType.RECEIVE and not self.connected):
            return {Status.CONNECTION_INVALID}
        if kind is RequestType.RECEIVE:
            outstanding, depth, queue = self.receives, self.receive_depth, self.receive_queue
        else:
            outstanding, depth, queue = self.requests, self.initiator_depth, self.initiator_queue
        if len(outstanding) >= depth:
            exact = resting and not any(request.silent for request in outstanding)
            return {Status.NO_MORE_ENTRIES} if exact else {Status.NO_MORE_ENTRIES, Status.SUCCESS}
        # Posts on a dead connection complete at once, so only the completion queue bounds them;
        # and what flushes cancelled may fill it, if no poll takes it.
        most = queue.depth if self.connection.may_be_over() else queue.depth + queue.in_use()
        if queue.most() >= most:
            return {Status.NO_MORE_ENTRIES, Status.SUCCESS}
        return {Status.SUCCESS}

    def posted(self, request: Request) -> None:
        """A post was accepted."""
        request.late = self.connection.over
        if request.kind is RequestType.RECEIVE:
            self.receives.append(request)
            return
        request.waits_after = len(self.arrived)
        self.requests.append(request)
        self.posted_sends += request.kind is RequestType.SEND
        if self.other.shared is not None:
            self.other.shared.look()

    def flush(self) -> None:
        """Flush was called: posted requests may end with CANCELED."""
        self.flushes += 1
        for request in [*self.requests, *self.receives]:
            request.flushed = request.flushed or self.flushes
        self.flushed_receives = self.flushed_receives or bool(self.receives)

    # -- what a completion queue gives --

    def take(self, request: Request, status: Status, data: bytes) -> None:
        """Take a completion. `data` is what a Receive that succeeded holds now."""
        if request.kind is RequestType.RECEIVE:
            self._take_receive(request, status, data)
        else:
            self._take_request(request, status)
        request.release()

    def _take_request(self, request: Request, status: Status) -> None:
        while self.requests and self.requests[0] is not request:
            earlier = self.requests[0]
            if not earlier.silent:
                raise Violation(f"{self.name}: {request} completed before {earlier}")
            self.silently_done()
        if not self.requests:
            raise Violation(f"{self.name}: {request} completed, and was not outstanding")
        if status is Status.CANCELED:
            self._explain_cancel(request)
        del self.requests[0]
        if status is Status.SUCCESS:
            if request.silent:
                raise Violation(f"{self.name}: {request} completed although it succeeded")
            self._succeed(request)
            return
        if request.kind is RequestType.SEND:
            self.not_sent.append(request)
        if status is Status.CANCELED:
            self.flush_canceled = max(self.flush_canceled, request.flushed)
        else:
            self._explain_fault(request, status)
            self.failed = True
            self.connection.end()

    def silently_done(self) -> None:
        """The oldest request is silent, and it is known to be done."""
        request = self.requests.pop(0)
        self._succeed(request)
        request.release()

    def _succeed(self, request: Request) -> None:
        if request.must_fail:
            raise Violation(f"{self.name}: {request} succeeded, not {request.must_fail}")
        if request.late and request.length:
            raise Violation(f"{self.name}: {request} succeeded after the connection's end")
        if request.flushed and request.flushed <= self.flush_canceled:
            raise Violation(f"{self.name}: {request} succeeded behind one that was flushed")
        if request.kind is RequestType.SEND:
            self.sent.append(request)
        request.effect()

    def _explain_cancel(self, request: Request) -> None:
        if request.flushed or self.closed or self.connection.over:
            return
        if not self.connection.may_be_over():
            raise Violation(f"{self.name}: {request} CANCELED, and nothing had ended")
        self.connection.suspected = f"{self.name}: {request} CANCELED"

    def _explain_fault(self, request: Request, status: Status) -> None:
        if status in request.must_fail or status in request.may_fail:
            return
        if request.kind is RequestType.SEND and status is Status.REMOTE_ERROR:
            peer = self.other
            if peer.receive_fault or any(_refuses(r, request.length) for r in peer.posted_now()):
                self.remote_error = True
                return
        if self.connection.timed_out(request, status):
            return
        raise Violation(f"{self.name}: {request} ended with {status.name}")

    def posted_now(self) -> list[Request]:
        """Receives that a message can meet."""
        return self.shared.receives if self.shared else self.receives

    def _take_receive(self, request: Request, status: Status, data: bytes) -> None:
        self._leave_order(request)
        if status is Status.SUCCESS:
            if request.must_fail:
                raise Violation(f"{self.name}: {request} succeeded, not {request.must_fail}")
            queue = self.receive_queue
            notices = [n for n in queue.notices if n.kind is CqNotify.SOLICITED and not n.done]
            self.arrived.append(
                Arrival(request, data, self._own_done(), notices if not queue.told else [])
            )
        elif status is Status.CANCELED:
            self._explain_cancel(request)
        else:
            outsized = status is Status.BUFFER_OVERFLOW and self._was_outsized(request)
            if not (outsized or status in request.must_fail or status in request.may_fail):
                raise Violation(f"{self.name}: {request} ended with {status.name}")
            self.receive_fault = request
            self.connection.end()

    def _leave_order(self, request: Request) -> None:
        """Receives complete in issue order; a shared queue's in order for each queue pair."""
        receives = self.posted_now()
        if request not in receives:
            raise Violation(f"{self.name}: {request} completed, and was not outstanding")
        if self.shared is None and receives[0] is not request:
            raise Violation(f"{self.name}: {request} completed before {receives[0]}")
        if self.shared is not None:
            mine = [a.request.number for a in self.arrived]
            if mine and mine[-1] > request.number:
                raise Violation(f"{self.name}: {request} completed after {mine[-1]}")
        receives.remove(request)
        if self.shared is not None:
            self.shared.look()

    def _own_done(self) -> int | None:
        """For causality: messages of this side known to be done, if one queue tells of both."""
        if self.receive_queue is not self.initiator_queue:
            return None
        count = len(self.sent)
        for request in self.requests:
            if not request.silent:
                break
            count += request.kind is RequestType.SEND
        return count

    def _was_outsized(self, receive: Request) -> bool:
        """May the message that met this Receive have been longer than it?"""
        peer = self.other
        waiting = [r for r in peer.requests if r.kind is RequestType.SEND]
        known = peer.sent[len(self.arrived) :]
        return any(send.length > receive.length for send in [*known, *waiting, *peer.not_sent])


def _refuses(receive: Request, length: int) -> bool:
    return bool(receive.must_fail or receive.may_fail or length > receive.length)


class Connection:
    """Two sides, from their making to their end."""

    def __init__(self, one: Side, two: Side, patience: float) -> None:
        self.sides = one, two
        self.patience = patience
        self.over = False
        self.suspected = ""
        self.clock = 0.0
        one.other, two.other = two, one
        one.connection = two.connection = self

    def open(self) -> None:
        """Both sides know that they are connected."""
        for side in self.sides:
            side.connected = True

    def end(self) -> None:
        """It is over: a side ended it, or a request failed."""
        self.over = True

    def close(self, side: Side) -> None:
        """A side disconnects or is released."""
        side.closed = True
        if side.connected:
            self.end()

    def timed_out(self, request: Request, status: Status) -> bool:
        """Return whether a Send may have waited too long for a Receive."""
        return (
            status is Status.IO_TIMEOUT
            and request.kind is RequestType.SEND
            and request.clock < self.clock - self.patience
        )

    def may_be_over(self) -> bool:
        """Return whether something was posted that ends it when it is carried out."""
        if self.over:
            return True
        for side in self.sides:
            # A Send is a success when a receive is posted; that may be refused later.
            if any(_refuses(r, 0) for r in side.posted_now()):
                return True
            for request in side.requests:
                if request.must_fail or request.may_fail:
                    return True
                if request.kind is RequestType.SEND and (
                    request.clock < self.clock - self.patience
                    or any(_refuses(r, request.length) for r in side.other.posted_now())
                ):
                    return True
        return False

    # -- at rest --

    def unsettled(self) -> str:
        """Return the error that remains after both sides have polled long enough; else nothing."""
        for side in self.sides:
            trouble = self._waits_without_end(side)
            if trouble:
                return trouble
        if self.suspected and not self.over:
            return f"{self.suspected}, and the connection continues"
        return ""

    def _waits_without_end(self, side: Side) -> str:
        ended = side.closed or (self.over and side.connected)
        if ended and side.receives:
            return f"{side.name}: {side.receives[0]} outstanding after the end"
        if ended:
            for request in side.requests:
                if not request.silent:  # a silent one may have succeeded without a notice
                    return f"{side.name}: {request} outstanding after the end"
            return ""
        waits = side.requests[self._silently_done(side) :]
        if not waits:
            return ""
        if waits[0].kind is not RequestType.SEND or waits[0].must_fail:
            return f"{side.name}: {waits[0]} does not end"
        if side.other.posted_now():
            return f"{side.name}: {waits[0]} waits, a Receive is posted"
        return ""

    def unheard(self, sender: Side) -> str:
        """Return which message does not arrive though only its receiver has to poll; else nothing.

        Only Sends count with no other request before one that may wait: that is its sender's.
        """
        receiver = sender.other
        connected = sender.connected and receiver.connected
        if not connected or self.may_be_over() or self.suspected or sender.closed:
            return ""
        if any(request.flushed for request in sender.requests):
            return ""
        kinds = [request.kind is RequestType.SEND for request in sender.requests]
        first = kinds.index(True) if True in kinds else len(kinds)
        run = kinds[first:]
        sends = run.index(False) if False in run else len(run)
        posted = len(sender.sent) + sends
        if posted > len(receiver.arrived) and receiver.posted_now():
            missing = sender.requests[first] if sends else sender.sent[-1]
            return f"{sender.name}: {missing} or a later Send waits, a Receive is posted"
        return ""

    def _silently_done(self, side: Side) -> int:
        """How many of the oldest requests are silent, and known by now to be done."""
        taken = len(side.other.arrived) - len(side.sent)
        for count, request in enumerate(side.requests):
            taken -= request.kind is RequestType.SEND
            if not request.silent or request.must_fail or taken < 0:
                return count
        return len(side.requests)

    def settle(self) -> None:
        """Both sides have polled long enough: decide the open questions."""
        for side in self.sides:
            ended = side.closed or self.over
            for _ in range(len(side.requests) if ended else self._silently_done(side)):
                side.silently_done()
        for side in self.sides:
            self._match(side, side.other)
        for side in self.sides:
            self._check_refusal(side, side.other)

    def _match(self, sender: Side, receiver: Side) -> None:
        """The received messages equal the sent ones, in order."""
        both = min(len(sender.sent), len(receiver.arrived))
        for index in range(receiver.matched, both):
            self._compare(sender, receiver, sender.sent[index], receiver.arrived[index])
        receiver.matched = both
        lost = len(sender.sent) - len(receiver.arrived)
        if lost < 0:
            raise Violation(f"{receiver.name}: {-lost} more Receives than Sends have succeeded")
        excused = receiver.flushed_receives or receiver.receive_fault is not None
        if lost and not excused:
            raise Violation(f"{receiver.name}: {lost} messages that were sent did not arrive")
        if lost and receiver.posted_now() and not (self.over or receiver.closed):
            raise Violation(f"{receiver.name}: {lost} messages wait, a Receive is posted")

    def _compare(self, sender: Side, receiver: Side, sent: Request, got: Arrival) -> None:
        if sent.data != got.data:
            raise Violation(
                f"{receiver.name}: {got.request} holds {_brief(got.data)}, {sender.name} sent "
                f"{_brief(sent.data)} in {sent}"
            )
        if got.own_done is not None and got.own_done < sent.waits_after:
            raise Violation(
                f"{receiver.name}: {got.request} was reported before the Send that caused it"
            )
        if sent.solicited and any(not notice.done for notice in got.notices):
            raise Violation(f"{receiver.name}: {got.request} was solicited, and no Notify ended")
        sent.data = got.data = b""

    def _check_refusal(self, sender: Side, receiver: Side) -> None:
        """REMOTE_ERROR on one side is a refused Receive on the other, and the reverse."""
        if sender.remote_error and receiver.receive_fault is None:
            raise Violation(f"{sender.name}: REMOTE_ERROR, and no Receive was refused")
        if receiver.receive_fault is None or sender.remote_error:
            return
        proven = len(sender.sent) > len(receiver.arrived)
        other_fate = sender.closed or sender.receive_fault or sender.failed or sender.flush_canceled
        if not (proven or other_fate):
            raise Violation(f"{receiver.name}: a Receive was refused, no Send has failed")


def _brief(data: bytes) -> str:
    return f"{len(data)} bytes {data[:12].hex()}…" if len(data) > 12 else data.hex() or "nothing"
