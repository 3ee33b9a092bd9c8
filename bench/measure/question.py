# SPDX-License-Identifier: Apache-2.0
"""What can be asked of a transport. Every answer is seconds per message, so answers compare."""

import dataclasses
import enum
from typing import Any, Final, Self

from .how import USUAL, How


class Kind(enum.StrEnum):
    """The shape of the traffic."""

    PINGPONG = "pingpong"
    """Send and Receive to and fro; one way is half a round trip."""
    WRITE = "write"
    """One-sided Writes to and fro; each target spins on its memory."""
    READ = "read"
    """One Read after another."""
    STREAM = "stream"
    """Messages in one direction, as many in flight as the transport likes best."""
    WRITE_STREAM = "write-stream"
    """Writes in one direction, several outstanding."""
    READ_STREAM = "read-stream"
    """Reads, several outstanding."""
    CONNECT = "connect"
    """A new connection each time."""
    CONNECT_MANY = "connect-many"
    """Many new connections at once, between two processes."""
    MEETING = "meeting"
    """A new connection between every two of many processes."""
    REGISTER = "register"
    """Register memory, and Deregister it outside the clock."""
    DEREGISTER = "deregister"
    """Deregister memory, and Register it outside the clock."""
    REGISTRATION = "registration"
    """Register and Deregister, by several threads."""
    MESH = "mesh"
    """Each process sends one message to each other one, and takes one of each."""
    VALUE = "value"
    """Small values of a topic to and fro; larger ones as samples that are not read."""
    ARRAY = "array"
    """Arrays of a topic to and fro: an element is written at one end and read at the other."""
    BUILT = "built"
    """Arrays of a topic in one direction, each filled in the memory that it is sent from."""
    PUBLISH = "publish"
    """The call of a publisher alone; the subscribers receive outside the clock."""
    WOKEN = "woken"
    """From the call of a publisher until a subscriber that slept has the value."""
    OBJECT = "object"
    """Objects put into a queue and got from another one, to and fro; size 0 is a small dict."""
    PICKLED = "pickled"
    """Objects of MPI's calls in lower case, to and fro: bytes; size 0 is a small dict."""
    WINDOW = "window"
    """Non-blocking sends and receives, 16 at a time, of which all are waited for."""
    BARRIER = "barrier"
    """A barrier of all ranks; the kinds below are those of the collectives with a size each."""
    BCAST = "bcast"
    ALLREDUCE = "allreduce"
    """The size is that of the array of one rank."""
    ALLGATHER = "allgather"
    """The size is that of one rank's part."""
    ALLTOALL = "alltoall"
    """The size is that of the part of one rank for one other."""


_RATES: Final = frozenset({Kind.STREAM, Kind.WRITE_STREAM, Kind.READ_STREAM, Kind.BUILT})
"""Kinds whose figure is a rate."""

_WITHOUT_SIZE: Final = frozenset({Kind.CONNECT, Kind.CONNECT_MANY, Kind.MEETING, Kind.BARRIER})

_THERE_AND_BACK: Final = frozenset(
    {Kind.PINGPONG, Kind.WRITE, Kind.VALUE, Kind.ARRAY, Kind.OBJECT, Kind.PICKLED}
)

COLLECTIVES: Final = frozenset(
    {Kind.BARRIER, Kind.BCAST, Kind.ALLREDUCE, Kind.ALLGATHER, Kind.ALLTOALL}
)
"""What all ranks of an MPI program call together."""

WINDOW: Final = 16
"""Messages of `Kind.WINDOW` that are under way together."""

_TEXTS: Final = {
    Kind.PINGPONG: "ping-pong, one way",
    Kind.WRITE: "Write seen by the target, one way",
    Kind.READ: "Read",
    Kind.STREAM: "stream",
    Kind.WRITE_STREAM: "Write stream",
    Kind.READ_STREAM: "Read stream",
    Kind.CONNECT: "connection",
    Kind.CONNECT_MANY: "connection of many",
    Kind.MEETING: "connections of all pairs",
    Kind.REGISTER: "registered",
    Kind.DEREGISTER: "deregistered",
    Kind.REGISTRATION: "registered and deregistered",
    Kind.MESH: "all to all",
    Kind.VALUE: "value, one way",
    Kind.ARRAY: "array at both ends, one way",
    Kind.BUILT: "arrays built in place",
    Kind.PUBLISH: "publisher's call",
    Kind.WOKEN: "value to a subscriber that sleeps",
    Kind.OBJECT: "array through a queue, one way",
    Kind.PICKLED: "object of bytes, one way",
    Kind.WINDOW: f"message of {WINDOW} in flight",
    Kind.BARRIER: "Barrier",
    Kind.BCAST: "Bcast",
    Kind.ALLREDUCE: "Allreduce",
    Kind.ALLGATHER: "Allgather",
    Kind.ALLTOALL: "Alltoall",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One thing to measure: traffic of one kind with messages of one size."""

    kind: Kind
    size: int
    idle: int = 0
    """Idle connections on the same completion queue, or idle subscribers of a topic."""
    how: How = USUAL

    @property
    def ways(self) -> int:
        """Messages per round of the benchmark's loop.

        At a given rate a message's time runs from its intended start until its answer is there.
        """
        if self.kind is Kind.WINDOW:
            return WINDOW
        return 2 if self.kind in _THERE_AND_BACK and not self.how.rate else 1

    @property
    def fewest(self) -> int:
        """Rounds of a measurement, at least."""
        return 1 if self.kind is Kind.MEETING else 16

    @property
    def is_stream(self) -> bool:
        """Whether the figure is a rate rather than a time."""
        return self.kind in _RATES

    @property
    def label(self) -> str:
        """The name in tables."""
        label = _TEXTS[self.kind]
        if self.how.rate:
            label = label.replace("one way", "there and back")
        if self.kind is Kind.OBJECT and not self.size:
            label = label.replace("array", "small object")
        elif self.kind is Kind.PICKLED and not self.size:
            label = label.replace("object of bytes", "small dict")
        elif self.kind not in _WITHOUT_SIZE:
            label = f"{format_size(self.size)} {label}"
        if self.idle:
            of = "subscribers" if self.kind is Kind.PUBLISH else "connections"
            label += f", {self.idle:,} idle {of}"
        return ", ".join(filter(None, (label, self.how.describe())))

    def as_json(self) -> dict[str, Any]:
        """Return the form that goes to worker processes and into reports."""
        return {
            "kind": self.kind.value,
            "size": self.size,
            "idle": self.idle,
            "how": self.how.as_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return the object from the form that `as_json()` returned."""
        return cls(
            Kind(data["kind"]), int(data["size"]), int(data["idle"]), How.from_json(data["how"])
        )


def format_size(nbytes: int) -> str:
    """Return a size as text: 40 B, 64 KiB, 4 MiB."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= factor and nbytes % factor == 0:
            return f"{nbytes // factor} {unit}"
    return f"{nbytes} B"
