# SPDX-License-Identifier: Apache-2.0
"""The handshake: how a connector moves from state to state when others decide something.

`State` names the states. Where the broker decides, a connector moves when an event comes; where
the two sides decide between them, it moves when it reads the link through its `QueuePairLink`.
It does so at the beginning of each of its methods and, while operations are pending, at every poll
of the progress engine. What the program decides is in `connector.py`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, ClassVar, Final

from shmnd.broker.protocol import written
from shmnd.common.steps import step
from shmnd.handshake.attempt import Attempt, ReadLimits, State, Terms, private_of
from shmnd.handshake.port import TCP, PortHolder
from shmnd.handshake.queue_pair_link import LinkStatus, QueuePairLink
from shmnd.overlapped import Overlapped, OverlappedFile, detail_of
from shmnd.runtime.broker.events import ASKED
from shmnd.runtime.broker.state import Live
from shmnd.status import NdError, Status, error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shmnd.address import Address
    from shmnd.handshake.interfaces import AdapterLike
    from shmnd.runtime.interfaces import Event

__all__ = ["ConnectionStateMachine"]

_LOG: Final = logging.getLogger("shmnd.connections")

_LOOK_AGAIN: Final = 0.001
"""Seconds until the next look when another thread is at the connector now."""

_HAS_LINK: Final = frozenset({State.ACCEPTED, State.ACCEPTING, State.CONNECTED, State.DOWN})


class ConnectionStateMachine(PortHolder):
    """State and moves of a connector. Everything but `tick` and `on_event` wants its lock held."""

    def __init__(
        self,
        adapter: AdapterLike,
        overlapped_file: OverlappedFile | None = None,
        *,
        protocol: int = TCP,
    ) -> None:
        super().__init__(adapter, overlapped_file, protocol=protocol)
        self._number: Final = self._engine.new_number()
        """What the broker knows it by while it waits for a request."""
        self._state = State.NEW
        self._aborted = False  # the active side gave up before Accept or Reject
        self._qp_link: QueuePairLink | None = None
        self._attempt: Attempt | None = None
        self._limits = ReadLimits(0, 0)
        self._private: bytes | None = None
        # The pending GetConnectionRequest, which is the listener's, and the listener's number.
        self._request: tuple[Overlapped, int] | None = None
        self._deciding: Overlapped | None = None  # the pending Connect or Accept
        self._asked = 0  # the number of the request by which the broker was asked for that
        self._unanswered = False  # it has not answered that yet
        self._notifying: dict[Overlapped, None] = {}
        self._disconnecting: Overlapped | None = None

    # -- reading the link --

    def _tick(self) -> None:
        """Look, as the progress engine wants it while something is pending; never wait for a
        thread.
        """
        if not self._lock.acquire(blocking=False):
            self._engine.pending_operations.hurry(self)
            self._engine.wake_at(time.monotonic() + _LOOK_AGAIN)
            return
        try:
            self._look()
            if not self._pending:
                self._engine.pending_operations.remove(self)
        finally:
            self._lock.release()

    def _look(self) -> None:
        """Find out what the other side, or the queue pair's owner, has done meanwhile."""
        if self._qp_link is None:
            return
        look = self._qp_link.look()
        if look is LinkStatus.RELEASED:
            self._queue_pair_gone()
        elif self._state is State.ACCEPTED and look is LinkStatus.REFUSED:
            self._qp_link.give_up()
            self._finish()
        elif self._state is State.ACCEPTING:
            self._look_at_decision(look)
        if self._state is State.CONNECTED and look is LinkStatus.DOWN:
            self._state = State.DOWN
            self._notify()

    def _look_at_decision(self, look: LinkStatus) -> None:
        if look in (LinkStatus.OPEN, LinkStatus.DOWN):
            assert self._qp_link is not None
            self._qp_link.keep(self)
            self._state = State.CONNECTED
            self._decide(Status.SUCCESS)
        elif look is LinkStatus.REFUSED:
            self._refused_after_accept()

    def _refused_after_accept(self) -> None:
        assert self._qp_link is not None
        self._qp_link.give_up()
        self._finish()
        self._decide(Status.CONNECTION_REFUSED, "the active side rejected or gave up")

    def _queue_pair_gone(self) -> None:
        """The queue pair was released. It has told its peer; the broker must know too."""
        if self._state is State.CONNECTING:
            self._withdraw()
        self._finish()
        self._decide(Status.CANCELED, "the queue pair was released")
        self._notify()

    def _tell_released(self) -> None:
        """The queue pair is being released, perhaps by a finaliser: no lock may be waited for."""
        attempt = self._attempt
        if self._state is State.CONNECTING and attempt is not None:
            self._post_abandon(attempt)
        self._engine.pending_operations.hurry(self)
        self._engine.ring()

    # -- what the broker says --

    def _on_event(self, event: Event, fds: list[int]) -> None:
        """Take an event of the broker. The progress engine calls this, one event at a time."""
        with self._lock:
            self._look()
            self._EVENTS[event["ev"]](self, event, fds)

    def _on_accepted(self, event: Event, fds: list[int]) -> None:
        if not self._is_undecided(event):
            self._engine.post("abandon", connection=event["connection"])
            return
        step("answer-arrived")
        attempt = self._attempt
        assert attempt is not None
        attempt.theirs = Terms.read(event["answer"])
        attempt.peer_adapter = event["peer_adapter"]
        try:
            self._take_link(attempt, event["size"], fds)
        except NdError as exc:
            self._withdraw()
            self._start_over()
            self._decide(exc.status, detail_of(exc))
            return
        self._private = private_of(event)
        self._state = State.ACCEPTED
        step("answer-taken")
        self._engine.unfollow("active", attempt.connection)  # the rest is in the link
        self._forget_asking()
        self._record_live()
        self._decide(Status.SUCCESS)

    def _take_link(self, attempt: Attempt, size: int, fds: list[int]) -> None:
        assert self._qp_link is not None
        assert attempt.mine is not None
        assert attempt.theirs is not None
        call = "Connector.connect"
        if not fds:
            raise error(Status.INSUFFICIENT_RESOURCES, call, "no descriptor was free for the link")
        peer = self._engine.require_peer(
            attempt.peer_adapter, call, Status.CONNECTION_REFUSED, "the process that accepted"
        )
        limits = attempt.mine.limits.meeting(attempt.theirs.limits)
        self._qp_link.take_answer(attempt, fds.pop(0), size, peer, limits)
        self._limits = limits

    def _on_refused(self, event: Event, fds: list[int]) -> None:
        if self._is_undecided(event):
            status = Status(event["status"])
            self._fail_connect(event["message"], private_of(event), status)

    def _on_answer(self, event: Event, fds: list[int]) -> None:
        """The broker has taken a Connect or Accept, or has refused it."""
        if event["re"] != self._asked:
            return  # that of an attempt which is over
        self._unanswered = False
        status = Status(event["status"])
        if self._state is State.CONNECTING:
            if status is Status.SUCCESS:
                self._connect_taken(event["connection"], event["port"])
            else:
                where = status is Status.CONNECTION_REFUSED
                place = f" ({self._engine.meeting_place})" if where else ""
                self._fail_connect(event["message"] + place, None, status)
            return
        self._forget_asking()
        if self._state is State.ACCEPTING and status is not Status.SUCCESS:
            self._accept_refused(status, event["message"])

    def _connect_taken(self, connection: int, port: int) -> None:
        attempt = self._attempt
        assert attempt is not None
        assert self._port is not None
        with self._engine.rpc:
            self._port.bound(port)
        step("connect-asked")
        attempt.connection, attempt.local = connection, (attempt.local[0], port)
        self._engine.follow("active", connection, self)

    def _accept_refused(self, status: Status, detail: str) -> None:
        """The broker did not bring the answer to the active side."""
        assert self._qp_link is not None
        assert self._attempt is not None
        self._qp_link.give_up()
        if status is Status.CONNECTION_ABORTED:
            self._finish(aborted=True)
        else:  # the offer stands: the program may accept once more
            self._engine.broker_state.live.pop(("passive", self._attempt.connection), None)
            self._qp_link = None
            self._state = State.OFFERED
        self._decide(status, detail)

    def _is_undecided(self, event: Event) -> bool:
        """Return whether an event is about the Connect that is pending now."""
        return (
            self._state is State.CONNECTING
            and self._attempt is not None
            and self._attempt.connection == event["connection"]
        )

    def _on_offer(self, event: Event, fds: list[int]) -> None:
        request = self._request
        if request is None or request[1] != event["object"]:
            # It was for a request to another listener, which was closed meanwhile.
            self._engine.post("reject", connection=event["connection"])
            return
        overlapped, listener = request
        self._forget_request(listener)
        theirs = Terms.read(event["offer"])
        self._attempt = Attempt(
            "passive",
            event["connection"],
            _address(event["local"]),
            _address(event["peer"]),
            theirs=theirs,
            peer_adapter=event["peer_adapter"],
        )
        own = self._adapter._limits
        most = ReadLimits(own.max_inbound_read_limit, own.max_outbound_read_limit)
        self._limits = most.meeting(theirs.limits)
        self._private = private_of(event)
        self._state = State.OFFERED
        step("offer-taken")
        self._engine.follow("passive", event["connection"], self)
        overlapped._complete(Status.SUCCESS)

    def _on_abandoned(self, event: Event, fds: list[int]) -> None:
        if self._attempt is None or self._attempt.connection != event["connection"]:
            return
        if self._state is State.OFFERED:
            self._finish(aborted=True)
        elif self._state is State.ACCEPTING and self._unanswered:
            self._accept_refused(Status.CONNECTION_ABORTED, "the active side has given up")
        elif self._state is State.ACCEPTING:
            self._refused_after_accept()

    def _on_broker_lost(self, event: Event, fds: list[int]) -> None:
        """Fail an undecided connection, which no broker decides now; an existing link continues."""
        attempt = self._attempt
        asked = (ASKED, self._asked) in event["ends"]
        if attempt is None or not (asked or (attempt.role, attempt.connection) in event["ends"]):
            return
        unanswered = self._unanswered
        if asked:
            self._forget_asking()
        if self._state is State.CONNECTING:
            self._fail_connect("the broker died before there was an answer", None)
        elif self._state is State.ACCEPTING and unanswered:
            self._accept_refused(
                Status.CONNECTION_ABORTED, "the broker died before it took the answer"
            )
        elif self._state is State.OFFERED:
            self._finish(aborted=True)

    def _on_port_lost(self, event: Event, fds: list[int]) -> None:
        """Another process took the port while there was no broker. A connection does not care."""
        if self._state is State.BOUND:
            self._start_over()

    _EVENTS: ClassVar[Mapping[str, Callable[[ConnectionStateMachine, Event, list[int]], None]]] = {
        "answer": _on_answer,
        "accepted": _on_accepted,
        "refused": _on_refused,
        "offer": _on_offer,
        "abandoned": _on_abandoned,
        "broker_lost": _on_broker_lost,
        "port_lost": _on_port_lost,
    }

    # -- what the listener does --

    def _expect_request(self, overlapped: Overlapped, listener: int) -> None:
        """Wait for a request; for `Listener.get_connection_request`."""
        with self._lock:
            if self._state is not State.NEW:
                raise error(
                    Status.INVALID_PARAMETER_1,
                    overlapped.call,
                    f"the connector is {self._state.value}; a request needs a new one",
                )
            self._request = overlapped, listener
            self._state = State.WAITING
            self._engine.follow_object(self._number, self)

    def _stop_expecting(self, overlapped: Overlapped) -> bool:
        """Be as new again; False when it does not wait any more."""
        with self._lock:
            if self._request is None or self._request[0] is not overlapped:
                return False
            self._forget_request(self._request[1])
            return True

    def _forget_request(self, listener: int) -> None:
        self._request = None
        self._state = State.NEW
        self._engine.unfollow_object(self._number)
        self._engine.broker_state.armed.pop((listener, self._number), None)

    # -- ends of operations --

    def _decide(self, status: Status, detail: str = "") -> None:
        """The pending Connect or Accept, if there is one, is over."""
        overlapped, self._deciding = self._deciding, None
        if overlapped is not None:
            _LOG.debug("%s: %s %s %r", overlapped.call, status, detail, self)
            overlapped._complete(status, detail)

    def _notify(self) -> None:
        """The connection has ended."""
        _LOG.debug("the connection has ended: %r", self)
        notifying, self._notifying = self._notifying, {}
        for overlapped in notifying:
            overlapped._complete(Status.SUCCESS)

    def _cancel_connect(self, overlapped: Overlapped) -> bool:
        with self._lock:
            self._look()
            if self._deciding is not overlapped:
                return False
            self._deciding = None
            self._withdraw()
            self._start_over()
            return True

    def _cancel_accept(self, overlapped: Overlapped) -> bool:
        with self._lock:
            self._look()
            if self._deciding is not overlapped:
                return False
            self._deciding = None
            assert self._qp_link is not None
            self._qp_link.give_up()
            self._finish()
            return True

    def _cancel_notify(self, overlapped: Overlapped) -> bool:
        with self._lock:
            self._notifying.pop(overlapped, None)
            return True

    # -- moves --

    def _hang_up(self, overlapped: Overlapped | None = None) -> None:
        """End a connection from this side; the operation is over when the flush is."""
        qp_link = self._qp_link
        assert qp_link is not None
        self._notify()
        self._finish()
        step("end-told")

        def done() -> None:
            if overlapped is not None:
                overlapped._complete(Status.SUCCESS)

        qp_link.disconnect(done)

    def _withdraw(self) -> None:
        """Return up a Connect that is undecided, and tell the broker."""
        assert self._attempt is not None
        assert self._qp_link is not None
        self._post_abandon(self._attempt)
        self._qp_link.give_up()

    def _post_abandon(self, attempt: Attempt) -> None:
        """Withdraw the offer at the broker, which knows it by the port alone before its answer."""
        if not self._unanswered:
            self._engine.post("abandon", connection=attempt.connection)
        elif self._port is not None:
            self._engine.post("close", object=self._port.object)

    def _fail_connect(
        self, detail: str, private: bytes | None, status: Status = Status.CONNECTION_REFUSED
    ) -> None:
        """The pending Connect was refused; another may follow."""
        assert self._qp_link is not None
        self._qp_link.give_up()
        self._start_over()
        self._private = private
        self._decide(status, detail)

    def _start_over(self) -> None:
        """Be as new: ready for another Connect, or another Bind."""
        self._drop_attempt()
        self._drop_port()
        self._limits = ReadLimits(0, 0)
        self._state = State.NEW

    @property
    def _is_new(self) -> bool:
        """Unused, or its last use failed."""
        with self._lock:
            self._look()
            return self._state is State.NEW

    @property
    def _is_aborted(self) -> bool:
        """The active side gave up before Accept or Reject."""
        with self._lock:
            return self._aborted

    @property
    def _told_limits(self) -> tuple[int, int]:
        """The (inbound, outbound) read limits that came with the peer's private data."""
        with self._lock:
            return self._limits.inbound, self._limits.outbound

    def _unbind(self) -> None:
        """Undo a Bind that no Connect followed."""
        with self._lock:
            if self._state is State.BOUND:
                self._start_over()

    def _finish(self, *, aborted: bool = False) -> None:
        """This connector is through; nothing but its release is left."""
        if self._state in _HAS_LINK:
            assert self._attempt is not None
            self._engine.broker_state.live.pop((self._attempt.role, self._attempt.connection), None)
            self._engine.post("closed", connection=self._attempt.connection)
        self._drop_attempt()
        self._drop_port()
        self._aborted = self._aborted or aborted
        self._state = State.CLOSED

    def _drop_attempt(self) -> None:
        if self._attempt is not None:
            self._engine.unfollow(self._attempt.role, self._attempt.connection)
        self._forget_asking()
        self._attempt = None
        self._qp_link = None

    def _note_asked(self, number: int) -> None:
        """Await the broker's answer to a request; number 0: it was called, and has answered."""
        self._asked, self._unanswered = number, number != 0

    def _forget_asking(self) -> None:
        if self._asked:
            self._engine.unfollow_answer(self._asked)
        self._note_asked(0)

    def _record_live(self) -> None:
        """From here on the connection is announced to a new broker."""
        attempt = self._attempt
        assert attempt is not None
        self._engine.broker_state.live[attempt.role, attempt.connection] = Live(
            attempt.connection,
            self._adapter.uid,
            attempt.peer_adapter,
            attempt.local,
            attempt.peer,
            attempt.role,
            self._protocol,
        )

    def __repr__(self) -> str:
        attempt = self._attempt
        way = f", {written(attempt.local)} to {written(attempt.peer)}" if attempt else ""
        if attempt is None and self._port is not None:
            way = f" to {written(self._port.address)}"
        return f"<Connector {self._state.value}{way}>"


def _address(wire: list[object]) -> Address:
    host, port = wire
    assert isinstance(port, int)
    return str(host), port
