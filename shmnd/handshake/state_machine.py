# SPDX-License-Identifier: Apache-2.0
"""The state machine of a connector: its state, and the moves that its peer causes through the link.

`State` names the states. A connector reads the link through its `QueuePairLink` at the beginning of
each of its methods and, while operations are pending, at every poll of the progress engine. The
moves that the broker causes are in `broker_events.py`, those of the program in `connector.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from shmnd.broker.protocol import written
from shmnd.common.held import Attempted, Held
from shmnd.common.steps import step
from shmnd.handshake.attempt import NO_READS, Attempt, ReadLimits, State
from shmnd.handshake.broker_side import BrokerSide
from shmnd.handshake.port import TCP, PortHolder
from shmnd.handshake.preconditions import invalid
from shmnd.handshake.queue_pair_link import UNDECIDED, LinkStatus, QueuePairLink
from shmnd.overlapped import Overlapped, OverlappedFile
from shmnd.status import NdError, Status, error

if TYPE_CHECKING:
    from shmnd.handshake.interfaces import AdapterLike

__all__ = ["GAVE_UP", "LOST", "ConnectionStateMachine"]

GAVE_UP: Final = "ended with its request, which the active side has given up"
LOST: Final = "ended with its request, which was lost with the broker"
_GONE: Final = "ended with its Connect, whose answer the peer took back"
_LOG: Final = logging.getLogger("shmnd.connections")

# Looked up once: a member of an enumeration takes as long as a call.
_NEW: Final = State.NEW
_CONNECTED: Final = State.CONNECTED
_CLOSED: Final = State.CLOSED
_OPEN: Final = LinkStatus.OPEN
_HAS_LINK: Final = (State.CONNECTED, State.DOWN, State.ACCEPTED, State.ACCEPTING)


class ConnectionStateMachine(PortHolder):
    """State and moves of a connector.

    The moves need the connector's lock held. `_tick`, `_on_event`, `_unbind`, the cancels and the
    properties take it themselves; `_act_on_release` needs none.
    """

    def __init__(
        self,
        adapter: AdapterLike,
        overlapped_file: OverlappedFile | None = None,
        *,
        protocol: int = TCP,
    ) -> None:
        super().__init__(adapter, overlapped_file, protocol=protocol)
        self._number = 0
        """What names it to the broker while it waits for a request: another number each time."""
        self._broker: Final = BrokerSide(adapter)
        self._state = State.NEW
        self._aborted = False  # the active side gave up before Accept or Reject
        self._end = ""  # how it came to its final state, for errors
        self._qp_link: QueuePairLink | None = None
        self._attempt: Attempt | None = None
        self._limits: ReadLimits = NO_READS
        self._private: bytes | None = None
        # The pending GetConnectionRequest, which is the listener's, and the listener's number.
        self._request: tuple[Overlapped, int] | None = None
        self._deciding: Overlapped | None = None  # the pending Connect or Accept
        self._notifying: dict[Overlapped, None] = {}
        self._disconnecting: dict[Overlapped, None] = {}

    # -- reading the link --

    def _tick(self) -> None:
        """Poll for the progress engine while an operation is pending. Never wait for a thread."""
        with Attempted(self._lock) as free:
            if not free:
                self._try_again()
                return
            self._poll_link()
            if not self._pending:
                self._engine.pending_operations.remove(self)
        super()._tick()

    def _poll_link(self) -> None:
        """Read the link, and move where the peer or the owner of the queue pair has acted."""
        if self._qp_link is None:
            return
        link = self._qp_link.poll()
        if link is UNDECIDED or (link is _OPEN and self._state is _CONNECTED):
            return  # at once: nothing has happened
        if link is LinkStatus.RELEASED:
            self._queue_pair_gone()
        elif self._state is State.ACCEPTED:
            self._follow_confirmation(link)
        elif self._state is State.ACCEPTING:
            self._follow_decision(link)
        if self._state is State.CONNECTED and link is LinkStatus.DOWN:
            self._notify()
            self._state = State.DOWN  # last: a handler that raises leaves the rest to the next poll

    def _follow_confirmation(self, link: LinkStatus) -> None:
        assert self._qp_link is not None
        if link is LinkStatus.REFUSED:
            self._qp_link.give_up()
            self._finish(_GONE)
        else:  # opened by a CompleteConnect that the handler of a signal has interrupted
            self._qp_link.keep(self)
            self._settle()

    def _follow_decision(self, link: LinkStatus) -> None:
        if link is LinkStatus.OPEN or link is LinkStatus.DOWN:
            assert self._qp_link is not None
            self._qp_link.keep(self)
            self._decide(Status.SUCCESS)
            self._settle()  # last: where a handler raises before, the next poll repeats the move
        elif link is LinkStatus.REFUSED:
            self._refused_after_accept()

    def _settle(self) -> None:
        """Move to CONNECTED: both sides are."""
        assert self._attempt is not None
        self._attempt.settle()
        self._state = State.CONNECTED

    def _refused_after_accept(self, why: str = "") -> None:
        assert self._qp_link is not None
        self._qp_link.give_up()
        reason = f"the active side could not connect: {why}" if why else ""
        refusal = reason or "the active side rejected or gave up"
        self._decide(Status.CONNECTION_REFUSED, refusal)
        self._finish("ended with its Accept, which the active side refused")

    def _queue_pair_gone(self) -> None:
        """End the attempt, because the queue pair was released, which has notified its peer."""
        assert self._qp_link is not None
        if self._state is State.CONNECTING:
            given_up = self._qp_link.given_up
            self._withdraw()
            if given_up:  # by a cancel that a handler of a signal has interrupted
                self._decide(Status.CANCELED)
                self._start_over()
                return
        self._decide(Status.CANCELED, "the queue pair was released")
        self._notify()
        self._finish("ended with its queue pair, which was released")

    def _act_on_release(self) -> None:
        """Act on the release of the queue pair, perhaps in a finaliser: wait for no lock."""
        attempt = self._attempt
        if self._state is State.CONNECTING and attempt is not None:
            self._broker.withdraw(attempt, self._port)
        self._engine.pending_operations.poll_soon(self)
        self._engine.ring()

    # -- ends of operations --

    def _decide(self, status: Status, detail: str = "") -> None:
        """Complete the pending Connect or Accept, if there is one."""
        overlapped = self._deciding
        if overlapped is not None:
            _LOG.debug("%s: %s %s %r", overlapped.call, status, detail, self)
            overlapped._complete(status, detail)
            if self._deciding is overlapped:  # last: a handler that raises leaves it to the release
                self._deciding = None

    def _notify(self) -> None:
        """Complete every NotifyDisconnect: the connection has ended."""
        _LOG.debug("the connection has ended: %r", self)
        for overlapped in list(self._notifying):
            overlapped._complete(Status.SUCCESS)
            self._notifying.pop(overlapped, None)  # last: a handler that raises leaves it here

    def _cancel_connect(self, overlapped: Overlapped) -> bool:
        if self._lock.held_here:
            return False  # it interrupts a move
        with Held(self._lock):
            self._poll_link()
            if self._deciding is not overlapped:
                return False
            if self._attempt is not None:  # else a cancel that was interrupted is continued
                self._withdraw()
            self._start_over()
            self._decide(Status.CANCELED)
            return True

    def _cancel_accept(self, overlapped: Overlapped) -> bool:
        if self._lock.held_here:
            return False
        with Held(self._lock):
            self._poll_link()
            if self._deciding is not overlapped:
                return False
            if self._qp_link is not None:
                self._qp_link.give_up()
            self._finish("ended with its Accept, which was canceled")
            self._decide(Status.CANCELED)
            return True

    def _cancel_notify(self, overlapped: Overlapped) -> bool:
        with Held(self._lock):
            self._notifying.pop(overlapped, None)
            return True

    # -- moves --

    def _hang_up(self) -> None:
        """Disconnect from this side. Each Disconnect completes with the flush."""
        qp_link = self._qp_link
        assert qp_link is not None

        disconnecting = self._disconnecting  # not the connector: nothing keeps a dropped one

        def done() -> None:
            for overlapped in list(disconnecting):
                overlapped._complete(Status.SUCCESS)
                disconnecting.pop(overlapped, None)

        end = qp_link.ending(done)
        try:
            self._notify()
            self._finish("has disconnected")
            step("end-reported")
        finally:  # also where a handler of a signal raises
            self._engine.pending_operations.poll_until_done(end)

    def _withdraw(self) -> None:
        """Abort an undecided Connect, and withdraw its offer at the broker."""
        assert self._attempt is not None
        assert self._qp_link is not None
        self._broker.withdraw(self._attempt, self._port)
        self._qp_link.give_up()

    def _take_back_connect(self, qp_link: QueuePairLink) -> None:
        """Undo a Connect whose call raises, as its cancel does: the program may connect again."""
        if self._attempt is not None:
            self._withdraw()
        qp_link.give_up()
        if self._qp_link is not None:
            self._start_over()
        self._cancel_interrupted("Connector.connect")

    def _cancel_interrupted(self, call: str) -> None:
        """End the operation of a call that a handler of a signal has interrupted, if it began."""
        self._deciding = None
        for overlapped in list(self._pending):
            if overlapped.call == call:
                overlapped._complete(Status.CANCELED, "a handler of a signal has ended its call")

    def _fail_connect(
        self, detail: str, private: bytes | None, status: Status = Status.CONNECTION_REFUSED
    ) -> None:
        """Fail the pending Connect. The program may connect again."""
        assert self._qp_link is not None
        self._qp_link.give_up()
        self._private = private
        self._decide(status, detail)
        self._start_over()

    def _start_over(self) -> None:
        """Restore the initial state, in which Bind and Connect are possible."""
        # Before what a handler of a signal may interrupt, and by statements that call nothing: no
        # handler finds it CONNECTING without an attempt.
        attempt, self._attempt, self._qp_link = self._attempt, None, None
        self._limits, self._state = NO_READS, _NEW
        self._leave_attempt(attempt)
        self._drop_port()

    @property
    def _is_new(self) -> bool:
        """Whether it has not been used, or its last Connect failed."""
        within_another = self._lock.held_here
        with Held(self._lock):
            if not within_another:
                self._poll_link()
            return self._state is State.NEW

    @property
    def _is_aborted(self) -> bool:
        """Whether the active side gave up before Accept or Reject."""
        with Held(self._lock):
            return self._aborted

    @property
    def _received_limits(self) -> tuple[int, int]:
        """The (inbound, outbound) read limits that came with the peer's private data."""
        with Held(self._lock):
            return self._limits.inbound, self._limits.outbound

    def _unbind(self) -> None:
        """Undo a Bind that no Connect followed."""
        with Held(self._lock):
            if self._state is State.BOUND:
                self._start_over()

    def _finish(self, end: str, *, aborted: bool = False) -> None:
        """Move to the final state; only close() follows. `end` says how, after "the connector"."""
        if self._state in _HAS_LINK:
            assert self._attempt is not None
            port, self._port = self._port, None
            self._broker.report_closed(self._attempt, port)
        self._aborted, self._end = self._aborted or aborted, end
        attempt = self._attempt
        # Before what a handler of a signal may interrupt, and in one statement, as in _start_over.
        self._state, self._attempt, self._qp_link = _CLOSED, None, None
        self._leave_attempt(attempt)
        self._drop_port()

    def _invalid(self, call: str) -> NdError:
        """Return the error of a call that the present state does not permit."""
        return invalid(self._state, call, self._end)

    def _require_not_aborted(self, call: str) -> None:
        if self._aborted:
            raise error(Status.CONNECTION_ABORTED, call, "the active side has given up")

    def _note_failed_accept(self, exc: BaseException) -> None:
        """Keep a shortage as the reason of a refusal; end the attempt if its other side is gone."""
        self._broker.note_failure(exc)
        self._finish_if_aborted(exc)

    def _finish_if_aborted(self, exc: BaseException) -> None:
        """End the attempt if the broker refused a request because the active side is gone.

        The event that says so may come later.
        """
        if isinstance(exc, NdError) and exc.status is Status.CONNECTION_ABORTED:
            self._finish(GAVE_UP, aborted=True)

    def _leave_attempt(self, attempt: Attempt | None) -> None:
        if attempt is not None:
            self._engine.unfollow(attempt.role, attempt.connection)
        self._broker.forget_answer()

    def __repr__(self) -> str:
        attempt = self._attempt
        way = f", {written(attempt.local)} to {written(attempt.peer)}" if attempt else ""
        if attempt is None and self._port is not None:
            way = f" to {written(self._port.address)}"
        return f"<Connector {self._state.value}{way}>"
