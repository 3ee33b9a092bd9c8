# SPDX-License-Identifier: Apache-2.0
"""A connector as the broker knows it: the requests it sends there, and the records kept of it.

An answer that the connector does not wait for has a number, until it arrives as an event. A
connection that both sides have agreed on is recorded, for replay to a new broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shmnd.broker.protocol import MAX_REASON, encode_private, written
from shmnd.common.brief_waits import refuse_brief_wait
from shmnd.common.steps import step
from shmnd.runtime.broker.state import Live
from shmnd.status import NdError, Status, detail_of, error

if TYPE_CHECKING:
    from shmnd.address import Address
    from shmnd.handshake.attempt import Attempt, Terms
    from shmnd.handshake.interfaces import AdapterLike
    from shmnd.handshake.port import Port
    from shmnd.runtime.broker.events import EventTarget
    from shmnd.runtime.interfaces import LinkLike

__all__ = ["BrokerSide"]


class BrokerSide:
    """The requests and records of one connector. It is used under the connector's lock."""

    __slots__ = ("_adapter", "_engine", "asked", "lacking", "unanswered")

    def __init__(self, adapter: AdapterLike) -> None:
        self._adapter: Final = adapter
        self._engine: Final = adapter._engine
        self.asked = 0
        """The number of the request for the pending Connect or Accept; 0: no answer is to come."""
        self.unanswered = False
        """Whether the broker has yet to answer that request."""
        self.lacking = ""
        """The shortage that failed the last Accept or the answer to Connect: the reason given in
        the refusal or withdrawal that follows."""

    def note_request(self, number: int) -> None:
        """Note a request whose answer comes as an event; 0: the broker has answered already."""
        self.asked, self.unanswered = number, number != 0

    def forget_answer(self) -> None:
        """Take no answer to that request any more."""
        if self.asked:
            self._engine.unfollow_answer(self.asked)
        self.note_request(0)

    # -- the active side --

    def offer(
        self,
        end: EventTarget,
        call: str,
        port: Port,
        addresses: tuple[Address, Address],
        offer: Terms,
        private: bytes,
    ) -> tuple[int, int, Address]:
        """Send the offer of a Connect from a local address to the peer's.

        Return (request, 0, local address) when the answer will come as an event, which is possible
        for an unbound port; (0, connection, local address) when the broker has answered. Raise
        CONNECTION_REFUSED when there is no listener.
        """
        local, peer = addresses
        fields: dict[str, Any] = {
            "adapter": self._adapter.uid,
            "object": port.object,
            "local": list(local),
            "host": peer[0],
            "port": peer[1],
            "protocol": port.protocol,
            "private": encode_private(private),
            "offer": offer.wire(),
        }
        if peer[1] == 0:
            raise error(Status.CONNECTION_REFUSED, call, f"{written(peer)}: port 0 has no listener")
        unbound = local[1] == 0
        if unbound:
            # The number of the port is not needed before the peer answers: do not wait for it.
            asked = self._engine.ask(end, "connect", caller=call, hold=True, later=True, **fields)
            if asked:
                return asked, 0, local
        bound = port.note_bound if unbound else _was_bound
        connection = self._engine.connect(end, call, bound, **fields)
        return 0, connection, (local[0], port.address[1])

    def withdraw(self, attempt: Attempt, port: Port | None) -> None:
        """Withdraw an offer: by its port, as long as the broker has not answered."""
        if not self.unanswered:
            why, self.lacking = self.lacking, ""  # the next attempt may lack nothing
            self._engine.post("withdraw", connection=attempt.connection, why=why)
        elif port is not None:
            self._engine.post("close", object=port.object)

    # -- the passive side --

    def answer(
        self, end: EventTarget, call: str, attempt: Attempt, link: LinkLike, private: bytes
    ) -> None:
        """Send the answer of an Accept with the link, and record the connection."""
        assert attempt.mine is not None
        fields: dict[str, Any] = {
            "connection": attempt.connection,
            "private": encode_private(private),
            "answer": attempt.mine.wire(),
            "size": link.size,
        }
        with self._engine.conversing(call):
            asked = self._engine.ask(end, "accept", [link.fd], caller=call, **fields)
            self.note_request(asked)
            if not asked:
                refuse_brief_wait(call)
                self._engine.call("accept", [link.fd], caller=call, **fields)
            step("answer-sent")
            self.record_live(attempt)

    def refuse(self, attempt: Attempt, call: str, private: bytes) -> None:
        """Send the refusal of a Reject."""
        fields: dict[str, Any] = {"connection": attempt.connection, "why": self.lacking}
        refuse_brief_wait(call)
        self._engine.call("reject", caller=call, private=encode_private(private), **fields)
        step("refusal-sent")

    def abandon(self, attempt: Attempt) -> None:
        """Refuse a request whose connector is released, without waiting."""
        self._engine.post("reject", connection=attempt.connection, why=self.lacking)

    def note_failure(self, failure: BaseException) -> None:
        """Note that an Accept, or the answer to Connect, met a want of memory or descriptors."""
        if isinstance(failure, MemoryError):
            text = detail_of(failure) if isinstance(failure, NdError) else str(failure)
            self.lacking = (text or "it has no memory")[:MAX_REASON]

    # -- the record of a connection --

    def record_live(self, attempt: Attempt) -> None:
        """Record the connection; from here on it is replayed to a new broker."""
        self._engine.broker_state.live[attempt.role, attempt.connection] = Live(
            attempt.connection,
            self._adapter.uid,
            attempt.peer_adapter,
            attempt.local,
            attempt.peer,
            attempt.role,
            attempt.protocol,
        )

    def forget_live(self, attempt: Attempt) -> None:
        """Drop the record."""
        self._engine.broker_state.live.pop((attempt.role, attempt.connection), None)

    def report_closed(self, attempt: Attempt, port: Port | None) -> None:
        """Drop the record, and report the end of the connection; release its port with it."""
        self.forget_live(attempt)
        number = 0 if port is None else port.forget()
        if number:
            self._engine.post("closed", connection=attempt.connection, object=number)
        else:
            self._engine.post("closed", connection=attempt.connection)


def _was_bound(_port: int) -> None:
    """Take the number of a port that was bound, and noted, before the Connect."""
