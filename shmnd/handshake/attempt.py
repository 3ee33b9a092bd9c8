# SPDX-License-Identifier: Apache-2.0
"""What the two sides of a connection attempt exchange, and the state of a connector."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from shmnd.broker.protocol import decode_private
from shmnd.common.arguments import within
from shmnd.common.interruption import pass_on
from shmnd.status import NdError, Status, error

if TYPE_CHECKING:
    from shmnd.address import Address
    from shmnd.info import AdapterInfo
    from shmnd.runtime.interfaces import Event, PairDescription

__all__ = ["Attempt", "ReadLimits", "State", "Terms", "private_bytes", "private_of"]

_U32_MAX: Final = 0xFFFFFFFF


class State(enum.Enum):
    """Where a connector stands; A0 to A6 and P0 to P6 of the tables in the interface."""

    NEW = "new"  # A0, P0
    BOUND = "bound"  # A1
    CONNECTING = "connecting"  # A2: Connect is pending
    ACCEPTED = "accepted by the peer"  # A3: waits for CompleteConnect or Reject
    WAITING = "waiting for a request"  # P1: GetConnectionRequest is pending
    OFFERED = "holding a request"  # P2: waits for Accept or Reject
    ACCEPTING = "accepting"  # P3: Accept is pending
    CONNECTED = "connected"  # A4, P4
    DOWN = "disconnected by the peer or an error"  # A5, P5
    CLOSED = "closed"  # A6, P6


class ReadLimits(NamedTuple):
    """How many Reads may be in progress, towards this side and from it."""

    inbound: int
    outbound: int

    @classmethod
    def given(cls, inbound: object, outbound: object, call: str, parameter: int) -> ReadLimits:
        """Return the checked limits of the program; `parameter` is the number of the first one."""
        if type(inbound) is int and type(outbound) is int and inbound == outbound == 0:
            return NO_READS  # at once: what programs mostly pass
        return cls(
            within(call, parameter, "inbound read limit", inbound, 0, _U32_MAX),
            within(call, parameter + 1, "outbound read limit", outbound, 0, _U32_MAX),
        )

    @classmethod
    def of_peer(cls, value: object) -> ReadLimits:
        """Return what the peer sent; malformed values count as no Reads at all."""
        if isinstance(value, list) and len(value) == 2:
            try:
                return cls.given(value[0], value[1], "peer", 1)
            except NdError:
                pass
        return NO_READS

    def capped(self, limits: AdapterInfo) -> ReadLimits:
        """Return the limits, each at most that of an adapter."""
        if self is NO_READS:
            return self
        return ReadLimits(
            min(self.inbound, limits.max_inbound_read_limit),
            min(self.outbound, limits.max_outbound_read_limit),
        )

    def meeting(self, peer: ReadLimits) -> ReadLimits:
        """Return the limits that both sides offer: the peer's outbound Reads are inbound here."""
        if self is NO_READS or peer is NO_READS:
            return NO_READS
        return ReadLimits(
            min(self.inbound, peer.outbound),
            min(self.outbound, peer.inbound),
        )


NO_READS: Final = ReadLimits(0, 0)


class Terms(NamedTuple):
    """The offer of Connect and the answer of Accept, which travel with the private data."""

    limits: ReadLimits
    qp: PairDescription

    def wire(self) -> str:
        """Return the text that the peer's `read` takes; the broker does not read it."""
        return ",".join(map(str, (*self.limits, *self.qp)))

    @classmethod
    def read(cls, text: str) -> Terms:
        """Return what the peer sent; malformed text gives empty terms, which the ring refuses."""
        try:
            numbers = list(map(int, text.split(",")))
        except ValueError as exc:
            pass_on(exc)
            return cls(NO_READS, ())
        return cls(ReadLimits.of_peer(numbers[:2]), tuple(numbers[2:]))


@dataclass(slots=True)
class Attempt:
    """One attempt at a connection, and the connection that comes of it, seen from one end."""

    role: str
    """`active` or `passive`."""
    connection: int
    """The broker's number; both ends have the same."""
    local: Address
    peer: Address
    protocol: int
    mine: Terms | None = None
    """What this side offered or answered."""
    theirs: Terms | None = None
    """What the peer offered or answered."""
    peer_adapter: str = ""

    def settle(self) -> None:
        """Drop the terms, which are not needed once both sides are connected."""
        self.mine = self.theirs = None


def private_bytes(data: object, limit: int, limit_name: str, call: str) -> bytes:
    """Return private data as bytes, after a check of its type and of its length."""
    try:
        view = memoryview(data)  # type: ignore[arg-type]  # a TypeError refuses it
    except TypeError:
        raise error(
            Status.ACCESS_VIOLATION,
            call,
            f"private data must be bytes or another buffer, not {type(data).__name__}"
            + (": encode it first, text.encode()" if isinstance(data, str) else ""),
        ) from None
    with view:
        if view.nbytes > limit:
            raise error(
                Status.INVALID_BUFFER_SIZE,
                call,
                f"{view.nbytes} bytes of private data; the limit is {limit} ({limit_name})",
            )
        return view.tobytes()


def private_of(event: Event) -> bytes:
    """Return the private data that came with an event; malformed text counts as none."""
    try:
        return decode_private(event["private"])
    except ValueError as exc:
        pass_on(exc)
        return b""
