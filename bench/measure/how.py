# SPDX-License-Identifier: Apache-2.0
"""How a question is put: what the programs of perftest call their options."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Final, Self


class Wait(enum.StrEnum):
    """How an end waits for a completion."""

    HYBRID = "hybrid"
    """Poll for a while, then sleep: what `CompletionQueue.wait` does of itself."""
    POLL = "poll"
    """Poll until it is there."""
    EVENT = "event"
    """Sleep at once."""
    NOTIFY = "notify"
    """Sleep on the overlapped operation of a Notify."""
    ASYNCIO = "asyncio"
    """Await a Notify in an event loop, and sleep at once."""
    TASK = "task"
    """Await a Notify in an event loop that polls for a while first: what it does of itself."""


HEADER: Final = 8
"""Bytes of the header in mixed memory."""


class Memory(enum.StrEnum):
    """Where messages lie."""

    SEGMENT = "segment"
    """In shared memory, from `Adapter.allocate`."""
    PRIVATE = "private"
    """In an ordinary array."""
    NUMPY = "numpy"
    """In an array of numpy, in the memory that its library takes."""
    MIXED = "mixed"
    """A short header in an ordinary array, and the rest in shared memory, from a page on."""


@dataclasses.dataclass(frozen=True, slots=True)
class How:
    """The manner of the traffic. Zero leaves a choice to the benchmark."""

    wait: Wait = Wait.HYBRID
    memory: Memory = Memory.SEGMENT
    into: Memory | None = None
    """Where messages are received; None: in the same kind of memory."""
    inline: int = 0
    """Sends and Writes of up to so many bytes are inline."""
    sends: int = 0
    """Depth of the initiator queue."""
    receives: int = 0
    """Depth of the receive queue."""
    pairs: int = 1
    """Queue pairs that share the traffic."""
    credit: bool = False
    """The receiver of a stream says how much it can take, as ndping has it."""
    rate: float = 0.0
    """Messages per second that are to be started; 0: each when the one before is through."""
    warmup: int | None = None
    """Messages before the measurement; None: a twentieth of the measured ones."""
    validate: bool = False
    """First, send some messages whose every byte is checked."""
    burst: int = 0
    """Sends of a stream between two polls of their queue, each burst to its end."""
    batch: bool = False
    """A burst is shown to the other side as one batch, and so are the Receives after a poll."""
    threads: int = 1
    """Threads that do the same at the same time."""
    processes: int = 2
    """Processes that all talk with each other."""
    subscribers: int = 1
    """Subscribers of a topic."""

    @property
    def is_mixed(self) -> bool:
        """Whether one of the two ends has mixed memory."""
        return Memory.MIXED in {self.memory, self.into}

    def as_json(self) -> dict[str, Any]:
        """Return what differs from the usual."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in pairs if value != getattr(USUAL, name)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return the object from the form that `as_json()` returned.

        An unknown name is a TypeError, an unknown value a ValueError.
        """
        read: dict[str, Callable[[Any], Any]] = {"wait": Wait, "memory": Memory, "into": Memory}
        values: dict[str, Any] = {name: read.get(name, _same)(data[name]) for name in data}
        return cls(**values)

    def describe(self) -> str:
        """Return what differs from the usual, for a table; empty when nothing does."""
        words = []
        for name, value in self.as_json().items():
            words.append(_WORDS.get(name, f"{name} {{}}").format(value))
        return ", ".join(words)


_WORDS = {
    "wait": "wait {}",
    "credit": "credit",
    "memory": "{} memory",
    "into": "into {} memory",
    "inline": "inline to {} B",
    "pairs": "{} queue pairs",
    "rate": "{:g}/s",
    "warmup": "{} to warm up",
    "validate": "validated",
    "burst": "{} at a time",
    "batch": "as a batch",
    "threads": "{} threads",
    "processes": "{} processes",
    "subscribers": "{} subscribers",
}


USUAL: Final = How()


def _same(value: Any) -> Any:
    return value
