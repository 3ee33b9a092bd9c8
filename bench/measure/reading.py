# SPDX-License-Identifier: Apache-2.0
"""What one measurement gave: how long the loop took, and each round's time in nanoseconds.

Times go into an array that is there before a loop begins, from the iterator that it goes over, so
that a loop is the same whether it is recorded or not. Counting comes afterwards.
"""

import array
import dataclasses
import itertools
import operator
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    Stamps = array.array[int]
else:
    Stamps = array.array  # takes no parameter before Python 3.12
"""Signed 64-bit times; `count` + 1 of them for `count` rounds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The answer of one measurement."""

    seconds: float
    """Of the whole loop; per message once a subject has divided it."""
    samples: Mapping[int, int] = dataclasses.field(default_factory=dict)
    """How often a round took so many nanoseconds; empty where single rounds are not seen."""

    def per(self, messages: int) -> Self:
        """Return the same with seconds per message."""
        return dataclasses.replace(self, seconds=self.seconds / messages)

    def as_json(self) -> dict[str, Any]:
        """Return the form in which a worker answers."""
        return {"seconds": self.seconds, "samples": list(self.samples.items())}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return the object from the form that `as_json()` returned."""
        pairs = ((int(time), int(count)) for time, count in data["samples"])
        return cls(float(data["seconds"]), dict(pairs))


def make_stamps(count: int) -> Stamps:
    """Make room for the times of `count` rounds; every page of it is there."""
    return array.array("q", bytes(8 * (count + 1)))


def ticks(stamps: Stamps, count: int) -> Iterator[None]:
    """Go through `count` rounds and write down when each begins, and when the last one is over.

    No line of Python runs for it in a loop that goes over these.
    """
    times = iter(time.perf_counter_ns, None)
    return itertools.chain(map(stamps.__setitem__, range(count), times), _close(stamps, count))


def _close(stamps: Stamps, count: int) -> Iterator[None]:
    stamps[count] = time.perf_counter_ns()
    yield from ()


def intervals(stamps: Stamps) -> Counter[int]:
    """Return the times between one stamp and the next, counted."""
    return Counter(map(operator.sub, stamps[1:], stamps))


def counters(times: Iterable[int]) -> Counter[int]:
    """Return times that were measured one by one, counted."""
    return Counter(times)
