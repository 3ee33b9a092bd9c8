# SPDX-License-Identifier: Apache-2.0
"""The connector: one connection, from either side, as programs make and end it.

Each call checks its arguments and the state of the connector. It does its part, or refuses with the
status of the interface's state tables. `state_machine.py` has the changes without a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shmnd.address import into, pack_sockaddr, parse
from shmnd.broker.protocol import written
from shmnd.common.closing import made_by
from shmnd.common.held import Held
from shmnd.common.steps import step
from shmnd.handshake.attempt import Attempt, ReadLimits, State, Terms, private_bytes
from shmnd.handshake.broker_events import BrokerEvents
from shmnd.handshake.port import Port, source_address, source_host
from shmnd.handshake.preconditions import require_reachable
from shmnd.handshake.queue_pair_link import QueuePairLink, own_queue_pair
from shmnd.overlapped import Overlapped
from shmnd.status import NdError, Status, detail_of, error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from shmnd.address import Address
    from shmnd.handshake.interfaces import QueuePairLike

__all__ = ["Connector"]

# Looked up once: a member of an enumeration takes as long as a call.
_CLOSED: Final = State.CLOSED
_OFFERED: Final = State.OFFERED
_MAY_CONNECT: Final = (State.NEW, State.BOUND)
_CONNECTED_ONCE: Final = (State.CONNECTED, State.DOWN)
_HAS_LIMITS: Final = frozenset(
    {State.ACCEPTED, State.OFFERED, State.ACCEPTING, State.CONNECTED, State.DOWN}
)
_HAS_ADDRESSES: Final = _HAS_LIMITS | {State.CONNECTING}


@made_by("Adapter.create_connector")
class Connector(BrokerEvents):
    """Makes one connection, by `connect` and `complete_connect`, or by a request and `accept`."""

    # -- the active side --

    def bind(self, address: tuple[str, int]) -> None:
        """Choose the local address and port; port 0 lets the provider choose a free one."""
        call = "Connector.bind"
        self._check(call)
        wanted = parse(address, call, 1)
        with Held(self._lock):
            self._poll_link()
            if self._state is State.CLOSED:
                raise self._invalid(call)
            if self._state is not State.NEW:
                raise error(
                    Status.ADDRESS_ALREADY_ASSOCIATED, call, f"the connector is {self._state.value}"
                )
            self._drop_port()  # of a Bind that was interrupted behind this
            self._bind_port("connector", wanted, call)
            self._state = State.BOUND

    def connect(
        self,
        qp: QueuePairLike,
        address: tuple[str, int],
        inbound_read_limit: int = 0,
        outbound_read_limit: int = 0,
        private_data: Buffer = b"",
    ) -> Overlapped:
        """Ask the listener at an address for a connection with this queue pair.

        The operation completes when the peer has accepted, or refused. After an accept,
        `complete_connect` comes next. A refused connector can connect again; it keeps the private
        data of the refusal.
        """
        call = "Connector.connect"
        self._check(call)
        pair = own_queue_pair(qp, self._adapter, call)
        peer = parse(address, call, 2)
        limits = ReadLimits.given(inbound_read_limit, outbound_read_limit, call, 4)
        most = self._adapter._limits.max_caller_data
        private = private_bytes(private_data, most, "MaxCallerData", call)
        with Held(self._lock):
            self._poll_link()
            if self._state not in _MAY_CONNECT:
                if self._state is State.CLOSED:
                    raise self._invalid(call)
                raise error(Status.CONNECTION_ACTIVE, call, f"the connector is {self._state.value}")
            require_reachable(peer[0], call)
            qp_link = QueuePairLink(self._engine, pair)
            try:
                qp_link.take(pair, call)
                offer = Terms(limits.capped(self._adapter._limits), qp_link.describe())
                return self._ask(call, qp_link, peer, offer, private)._keeping(pair)
            except BaseException:
                self._take_back_connect(qp_link)
                raise

    def _ask(
        self, call: str, qp_link: QueuePairLink, peer: Address, offer: Terms, private: bytes
    ) -> Overlapped:
        """Send the offer and return the Connect. A refusal completes it; other errors raise."""
        port = self._port
        if port is None:
            # The broker binds it together with the Connect.
            local = source_host(self._adapter, peer[0]), 0
            port = Port(self._adapter, "connector", local, self._protocol)
        try:
            port.follow(self)
            ends = source_address(port, self._adapter, peer, call), peer
            asked, connection, local = self._broker.offer(self, call, port, ends, offer, private)
        except BaseException as exc:
            if isinstance(exc, NdError) and exc.status is Status.CONNECTION_REFUSED:
                self._port, self._qp_link = port, qp_link
                self._deciding = overlapped = self._start(call)
                self._fail_connect(detail_of(exc), None)
                return overlapped
            if not isinstance(exc, NdError):  # a handler of a signal: the broker may have the offer
                port.abandon()
                self._port = port
                self._start_over()
            elif port is not self._port:
                port.release()
            raise
        self._port, self._qp_link = port, qp_link
        self._attempt = Attempt("active", connection, local, peer, port.protocol, mine=offer)
        self._broker.note_request(asked)
        self._private = None
        self._state = State.CONNECTING
        return self._await_decision(self._start(call, None, self._cancel_connect, written(peer)))

    def complete_connect(self) -> Overlapped:
        """Confirm the connection that the peer has accepted; both sides are then connected."""
        call = "Connector.complete_connect"
        self._check(call)
        with Held(self._lock):
            self._poll_link()
            if self._state is not State.ACCEPTED:
                raise self._invalid(call)
            assert self._qp_link is not None
            self._qp_link.open()
            self._qp_link.keep(self)
            self._settle()
            return self._start(call, _at_once)

    # -- the passive side --

    def accept(
        self,
        qp: QueuePairLike,
        inbound_read_limit: int = 0,
        outbound_read_limit: int = 0,
        private_data: Buffer = b"",
    ) -> Overlapped:
        """Accept the request that this connector holds, with this queue pair.

        Completes when the active side has completed the connection or abandoned it, without a
        time limit.
        """
        call = "Connector.accept"
        self._check(call)
        pair = own_queue_pair(qp, self._adapter, call)
        limits = ReadLimits.given(inbound_read_limit, outbound_read_limit, call, 2)
        private = self._callee_data(private_data, call)
        with Held(self._lock):
            self._poll_link()
            self._require_acceptable(call)
            attempt = self._attempt
            assert attempt is not None
            assert attempt.theirs is not None
            qp_link = QueuePairLink(self._engine, pair)
            try:
                qp_link.take(pair, call)
                limits = limits.capped(self._adapter._limits).meeting(attempt.theirs.limits)
                attempt.mine = Terms(limits, qp_link.describe())
                self._send_answer(call, qp_link, attempt, private)
                self._qp_link, self._limits = qp_link, limits
                self._state = State.ACCEPTING
                deciding = self._start(call, None, self._cancel_accept, written(attempt.peer))
                return self._await_decision(deciding)._keeping(pair)
            except BaseException as exc:
                if qp_link.attached and not isinstance(exc, NdError):
                    self._break_off_accept(qp_link, attempt)
                qp_link.give_up()
                self._note_failed_accept(exc)
                raise

    def _break_off_accept(self, qp_link: QueuePairLink, attempt: Attempt) -> None:
        """End an Accept that a handler of a signal has interrupted, as its cancel does.

        The active side may have the answer, or may be connected, so the request is over.
        """
        self._engine.post("reject", connection=attempt.connection)  # if it was not answered yet
        if self._state is _OFFERED:
            self._qp_link, self._state = qp_link, State.ACCEPTING
        self._poll_link()
        if self._state is not _CLOSED:
            self._release("ended with its Accept, which was interrupted")
        self._cancel_interrupted("Connector.accept")

    def _require_acceptable(self, call: str) -> None:
        self._require_not_aborted(call)
        if self._state is _OFFERED:
            return
        if self._state in (State.ACCEPTING, State.CONNECTED, State.DOWN):
            raise error(Status.CONNECTION_ACTIVE, call, f"the connector is {self._state.value}")
        raise self._invalid(call)

    def _send_answer(
        self, call: str, qp_link: QueuePairLink, attempt: Attempt, private: bytes
    ) -> None:
        """Make the link and send it, so that the active side can use it at once."""
        peer = self._engine.require_peer(
            attempt.peer_adapter, call, Status.CONNECTION_ABORTED, "the active side's process"
        )
        assert attempt.mine is not None
        link = qp_link.answer(attempt, peer, attempt.mine.limits)
        step("answer-to-be-sent")
        try:
            self._broker.answer(self, call, attempt, link, private)
        finally:
            link.close_fd()

    def reject(self, private_data: Buffer = b"") -> None:
        """Reject a request in place of Accept, or an answer in place of CompleteConnect."""
        call = "Connector.reject"
        self._check(call)
        private = self._callee_data(private_data, call)
        with Held(self._lock):
            self._poll_link()
            self._require_not_aborted(call)
            if self._state is State.ACCEPTED:
                assert self._qp_link is not None
                self._qp_link.give_up(rejected=True)
            elif self._state is State.OFFERED:
                self._send_refusal(private, call)
            else:
                raise self._invalid(call)
            self._finish("has rejected its peer")

    def _send_refusal(self, private: bytes, call: str) -> None:
        assert self._attempt is not None
        try:
            self._broker.refuse(self._attempt, call, private)
        except NdError as exc:
            self._finish_if_aborted(exc)
            raise

    # -- the peer --

    def get_read_limits(self) -> tuple[int, int]:
        """Return the (inbound, outbound) read limits that the peer offered, or the agreed ones."""
        call = "Connector.get_read_limits"
        self._check(call)
        with Held(self._lock):
            self._poll_link()
            if self._state not in _HAS_LIMITS:
                raise self._invalid(call)
            return self._limits.inbound, self._limits.outbound

    def get_private_data(self) -> bytes:
        """Return the private data of the peer, with exactly the length that was sent."""
        return self._private_data("Connector.get_private_data")

    def get_private_data_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with the private data; return its length.

        BUFFER_OVERFLOW when it does not fit: what fits is filled, `.required` is the length.
        """
        call = "Connector.get_private_data_into"
        return into(call, buffer, self._private_data(call), partial=True)

    def _private_data(self, call: str) -> bytes:
        self._check(call)
        with Held(self._lock):
            self._poll_link()
            if self._private is None:
                raise self._invalid(call)
            return self._private

    def get_local_address(self) -> tuple[str, int]:
        """Return the address of this end, while it has a peer."""
        return self._attempt_now("Connector.get_local_address").local

    def get_local_address_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with this end's sockaddr; return its size, or raise BUFFER_OVERFLOW."""
        call = "Connector.get_local_address_into"
        return into(call, buffer, pack_sockaddr(self._attempt_now(call).local))

    def get_peer_address(self) -> tuple[str, int]:
        """Return the address of the other end, from Connect or the request on."""
        return self._attempt_now("Connector.get_peer_address").peer

    def get_peer_address_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with the peer's sockaddr; return its size, or raise BUFFER_OVERFLOW."""
        call = "Connector.get_peer_address_into"
        return into(call, buffer, pack_sockaddr(self._attempt_now(call).peer))

    def _attempt_now(self, call: str) -> Attempt:
        self._check(call)
        if self._broker.unanswered and self._state is State.CONNECTING:
            self._engine.settle()  # the port is in the answer
        with Held(self._lock):
            self._poll_link()
            if self._state not in _HAS_ADDRESSES or self._attempt is None:
                raise self._invalid(call)
            return self._attempt

    # -- the end of a connection --

    def notify_disconnect(self) -> Overlapped:
        """Request a notification of the end of the connection; at once when it has ended."""
        call = "Connector.notify_disconnect"
        self._check(call)
        with Held(self._lock):
            self._poll_link()
            if self._state not in _CONNECTED_ONCE:
                raise self._invalid(call)
            overlapped = self._start(call, cancel=self._cancel_notify)
            self._notifying[overlapped] = None
            if self._state is State.DOWN:
                self._notify()
            else:
                assert self._qp_link is not None
                self._qp_link.await_news(self)
            return overlapped

    def disconnect(self) -> Overlapped:
        """End the connection; outstanding requests of the queue pair end with CANCELED."""
        call = "Connector.disconnect"
        self._check(call)
        with Held(self._lock):
            self._poll_link()
            if self._state not in _CONNECTED_ONCE:
                raise self._invalid(call)
            overlapped = self._start(call, cancel=_too_late)
            self._disconnecting[overlapped] = None
            self._hang_up()
            return overlapped

    def close(self) -> None:
        """Release the connector: reject, abandon or disconnect, as its state requires.

        Safe at any moment and twice. Pending operations end with CANCELED, except that
        NotifyDisconnect succeeds, since the connection ended, and a Disconnect continues to its
        end.
        """
        if self._puts_off_close():
            return
        if self._state is not _CLOSED and self._engine.alive:  # the last state: it never leaves it
            with Held(self._lock):
                self._close_now()
        elif self._pending:
            self._cancel_pending()

    def _close_now(self) -> None:
        if self._state is not _CLOSED:
            self._poll_link()
            self._release("is closed")
        self._deciding = None  # a cancel that began before finds nothing to take back
        if self._pending:
            self._cancel_pending()

    def _release(self, end: str) -> None:
        if self._state is State.CONNECTING:
            self._withdraw()
        elif self._state is State.WAITING:
            assert self._request is not None
            overlapped, listener = self._request
            self._release_request(listener)
            overlapped._complete(Status.CANCELED, "the connector was released")
        elif self._state is State.OFFERED:
            assert self._attempt is not None
            self._broker.abandon(self._attempt)
        elif self._state in (State.ACCEPTED, State.ACCEPTING):
            assert self._qp_link is not None
            self._qp_link.give_up()
        elif self._state in (State.CONNECTED, State.DOWN):
            self._hang_up()
        self._finish(end)

    def _cancel_pending(self) -> None:
        for overlapped in list(self._pending):
            if overlapped not in self._disconnecting:
                overlapped._complete(Status.CANCELED, "the connector was released")

    # -- steps of several calls --

    def _check(self, call: str) -> None:
        super()._check(call)
        self._engine.progress_by_calls()  # what the broker has sent by now counts

    def _callee_data(self, data: Buffer, call: str) -> bytes:
        return private_bytes(data, self._adapter._limits.max_callee_data, "MaxCalleeData", call)

    def _await_decision(self, overlapped: Overlapped) -> Overlapped:
        """Return an operation that the peer, or the release of the queue pair, completes."""
        assert self._qp_link is not None
        self._deciding = overlapped
        self._qp_link.when_released(self._act_on_release)
        if self._state is not State.CONNECTING:  # there the broker speaks first
            self._qp_link.await_news(self)
        self._poll_link()  # it may have decided already
        return overlapped


def _at_once() -> Status:
    """Return SUCCESS. A poll calls this again where a signal handler interrupted the call."""
    return Status.SUCCESS


def _too_late(overlapped: Overlapped) -> bool:
    """Return False: a disconnect cannot be taken back."""
    return False
