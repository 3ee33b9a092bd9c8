# SPDX-License-Identifier: Apache-2.0
"""Events of the broker, and the moves that a connector makes because of them.

An event ends a pending Connect or Accept, delivers a connection request, or withdraws one. An event
about an attempt that has ended in the meantime changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from shmnd.common.held import Held
from shmnd.common.steps import step
from shmnd.handshake.attempt import Attempt, ReadLimits, State, Terms, private_of
from shmnd.handshake.state_machine import GAVE_UP, LOST, ConnectionStateMachine
from shmnd.runtime.broker.events import ASKED
from shmnd.status import NdError, Status, detail_of, error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shmnd.address import Address
    from shmnd.overlapped import Overlapped
    from shmnd.runtime.interfaces import Event

__all__ = ["BrokerEvents"]

_CONNECTING: Final = State.CONNECTING  # looked up once: a member takes as long as a call


class BrokerEvents(ConnectionStateMachine):
    """A connector that follows the broker's events, and that a listener may hand a request to."""

    # -- a request, for Listener.get_connection_request --

    def _expect_request(self, overlapped: Overlapped, listener: int) -> None:
        """Wait for a request; for `Listener.get_connection_request`."""
        self._refuse_within_another(overlapped.call)
        with Held(self._lock):
            if self._state is not State.NEW:
                raise error(
                    Status.INVALID_PARAMETER_1,
                    overlapped.call,
                    f"the connector is {self._state.value}; a request needs a new one",
                )
            # Another one each time: an offer for a request that was taken back is not for this one.
            self._number = self._engine.new_number()
            self._request = overlapped, listener
            self._state = State.WAITING
            self._engine.follow_object(self._number, self)

    def _stop_expecting(self, overlapped: Overlapped, *, released: bool = False) -> bool:
        """Stop waiting for a request; return False if the connector does not wait for it any more.

        With `released`, the broker was not asked before, and a post informs it.
        """
        with Held(self._lock):
            if self._request is None or self._request[0] is not overlapped:
                return False
            forget = self._release_request if released else self._forget_request
            forget(self._request[1])
            return True

    def _release_request(self, listener: int) -> None:
        """Wait no more; the broker refuses a request whose offer is on its way."""
        post = self._engine.post
        post("cancel_request", object=listener, connector=self._number, released=True)
        self._forget_request(listener)

    def _forget_request(self, listener: int) -> None:
        self._request = None
        self._state = State.NEW
        self._leave_request(listener)

    def _leave_request(self, listener: int) -> None:
        self._engine.unfollow_object(self._number)
        self._engine.broker_state.armed.pop((listener, self._number), None)

    # -- events --

    def _on_event(self, event: Event, fds: list[int]) -> None:
        """Take an event of the broker. The progress engine calls this, one event at a time."""
        with Held(self._lock):
            self._poll_link()
            self._EVENTS[event["ev"]](self, event, fds)

    # Where the handler of a signal raises in one of these, it is called again. So what a repeated
    # call goes by is changed last: an operation is completed before the state moves on.

    def _on_accepted(self, event: Event, fds: list[int]) -> None:
        attempt = self._attempt
        if attempt is None or attempt.connection != event["connection"]:
            self._engine.post("withdraw", connection=event["connection"])
        elif self._state is _CONNECTING:
            self._take_answer(attempt, event, fds)
        elif self._state is State.ACCEPTED:
            self._answer_taken(attempt)

    def _take_answer(self, attempt: Attempt, event: Event, fds: list[int]) -> None:
        step("answer-arrived")
        attempt.theirs = Terms.read(event["answer"])
        attempt.peer_adapter = event["peer_adapter"]
        try:
            self._take_link(attempt, event["size"], fds)
        except NdError as exc:
            self._broker.note_failure(exc)
            self._withdraw()
            self._decide(exc.status, detail_of(exc))
            self._start_over()
            return
        self._private = private_of(event)
        self._state = State.ACCEPTED
        self._answer_taken(attempt)

    def _answer_taken(self, attempt: Attempt) -> None:
        step("answer-taken")
        self._engine.unfollow("active", attempt.connection)  # the rest is in the link
        self._broker.forget_answer()
        self._broker.record_live(attempt)
        self._decide(Status.SUCCESS)

    def _take_link(self, attempt: Attempt, size: int, fds: list[int]) -> None:
        assert self._qp_link is not None
        assert attempt.mine is not None
        assert attempt.theirs is not None
        call = "Connector.connect"
        if not fds:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                "no descriptor was free for the link (ulimit -n)",
            )
        peer = self._engine.require_peer(
            attempt.peer_adapter, call, Status.CONNECTION_REFUSED, "the process that accepted"
        )
        limits = attempt.mine.limits.meeting(attempt.theirs.limits)
        self._qp_link.take_answer(attempt, fds[0], size, peer, limits)
        self._limits = limits

    def _on_refused(self, event: Event, fds: list[int]) -> None:
        if self._is_undecided(event):
            status = Status(event["status"])
            self._fail_connect(event["message"], private_of(event), status)

    def _on_answer(self, event: Event, fds: list[int]) -> None:
        """Take the answer to a Connect or Accept: the broker has passed it on, or refuses it."""
        if event["re"] != self._broker.asked:
            return  # that of an attempt which is over
        self._broker.unanswered = False
        refused = event["status"] != 0
        if self._state is _CONNECTING:
            if refused:
                self._fail_connect(event["message"], None, Status(event["status"]))
            else:
                self._connect_taken(event["connection"], event["port"])
            return
        if refused and self._state is State.ACCEPTING:
            self._accept_refused(Status(event["status"]), event["message"])
        self._broker.forget_answer()

    def _connect_taken(self, connection: int, port: int) -> None:
        attempt = self._attempt
        assert attempt is not None
        assert self._port is not None
        # Without `rpc`, which another thread may hold while it waits for the broker: the reply was
        # sorted under it, and what a replay read before this it took for an undecided Connect.
        self._port.note_bound(port)
        step("connect-asked")
        attempt.connection, attempt.local = connection, (attempt.local[0], port)
        self._engine.follow("active", connection, self)

    def _accept_refused(self, status: Status, detail: str, end: str = GAVE_UP) -> None:
        """Undo an Accept whose answer the broker did not bring to the active side."""
        assert self._qp_link is not None
        assert self._attempt is not None
        self._qp_link.give_up()
        self._decide(status, detail)
        if status is Status.CONNECTION_ABORTED:
            self._finish(end, aborted=True)
        else:  # the offer stands: the program may accept once more
            self._broker.forget_live(self._attempt)
            self._broker.note_failure(error(status, "Connector.accept", detail))
            self._qp_link, self._state = None, State.OFFERED

    def _is_undecided(self, event: Event) -> bool:
        """Return whether an event is about the Connect that is pending now."""
        return (
            self._state is _CONNECTING
            and self._attempt is not None
            and self._attempt.connection == event["connection"]
        )

    def _on_offer(self, event: Event, fds: list[int]) -> None:
        request, attempt = self._request, self._attempt
        if request is not None and event["connector"] == self._number:
            self._take_offer(event, *request)
        elif attempt is None or attempt.connection != event["connection"]:
            # It was for a request that was taken back meanwhile.
            self._engine.post("reject", connection=event["connection"])

    def _take_offer(self, event: Event, overlapped: Overlapped, listener: int) -> None:
        theirs = Terms.read(event["offer"])
        self._attempt = Attempt(
            "passive",
            event["connection"],
            _address(event["local"]),
            _address(event["peer"]),
            self._protocol,
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
        self._leave_request(listener)
        self._request = None

    def _on_withdrawn(self, event: Event, fds: list[int]) -> None:
        if self._attempt is None or self._attempt.connection != event["connection"]:
            return
        if self._state is State.OFFERED:
            self._finish(GAVE_UP, aborted=True)
        elif self._state is State.ACCEPTING and self._broker.unanswered:
            self._accept_refused(Status.CONNECTION_ABORTED, "the active side has given up")
        elif self._state is State.ACCEPTING:
            self._refused_after_accept(event.get("why", ""))

    def _on_broker_lost(self, event: Event, fds: list[int]) -> None:
        """Fail an undecided connection, which no broker decides now; an existing link continues."""
        attempt = self._attempt
        asked = (ASKED, self._broker.asked) in event["ends"]
        if attempt is None or not (asked or (attempt.role, attempt.connection) in event["ends"]):
            return
        unanswered = self._broker.unanswered
        if self._state is State.CONNECTING:
            self._fail_connect("the broker died before there was an answer", None)
        elif self._state is State.ACCEPTING and unanswered:
            self._accept_refused(
                Status.CONNECTION_ABORTED, "the broker died before it took the answer", LOST
            )
        elif self._state is State.OFFERED:
            self._finish(LOST, aborted=True)
        if asked:
            self._broker.forget_answer()

    def _on_port_lost(self, event: Event, fds: list[int]) -> None:
        """Start over, if bound: another process took the port while there was no broker."""
        if self._state is State.BOUND:
            self._start_over()

    _EVENTS: ClassVar[Mapping[str, Callable[[BrokerEvents, Event, list[int]], None]]] = {
        "answer": _on_answer,
        "accepted": _on_accepted,
        "refused": _on_refused,
        "offer": _on_offer,
        "withdrawn": _on_withdrawn,
        "broker_lost": _on_broker_lost,
        "port_lost": _on_port_lost,
    }


def _address(wire: list[object]) -> Address:
    host, port = wire
    assert isinstance(port, int)
    return str(host), port
