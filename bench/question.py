# SPDX-License-Identifier: Apache-2.0
"""What can be asked of a transport. Every answer is seconds per message, so answers compare."""

import dataclasses
import enum
from typing import Any, Self


class Kind(enum.StrEnum):
    """The shape of the traffic."""

    PINGPONG = "pingpong"
    """Send and Receive to and fro; one way is half a round trip."""
    WRITE = "write"
    """One-sided Writes to and fro; each target spins on its memory."""
    STREAM = "stream"
    """Messages in one direction, as many in flight as the transport likes best."""


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One thing to measure: traffic of one kind with messages of one size."""

    kind: Kind
    size: int
    idle: int = 0
    """Connections that lie idle on the same completion queue meanwhile."""

    @property
    def ways(self) -> int:
        """Messages per round of the benchmark's loop."""
        return 1 if self.kind is Kind.STREAM else 2

    @property
    def label(self) -> str:
        """What a table calls it."""
        size = format_size(self.size)
        beside = f", {self.idle:,} idle beside" if self.idle else ""
        match self.kind:
            case Kind.PINGPONG:
                return f"{size} ping-pong, one way{beside}"
            case Kind.WRITE:
                return f"{size} Write seen by the target, one way{beside}"
            case Kind.STREAM:
                return f"{size} stream{beside}"

    def as_json(self) -> dict[str, Any]:
        """Give the form that goes to worker processes and into reports."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Read what `as_json()` gave."""
        return cls(Kind(data["kind"]), int(data["size"]), int(data["idle"]))


def format_size(nbytes: int) -> str:
    """Write a size as people say it: 40 B, 64 KiB, 4 MiB."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= factor and nbytes % factor == 0:
            return f"{nbytes // factor} {unit}"
    return f"{nbytes} B"
