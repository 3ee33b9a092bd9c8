# SPDX-License-Identifier: Apache-2.0
"""A figure and its spread over the rounds of one run."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Final, Self

NOISY: Final = 2.0
"""Rounds whose greatest value exceeds the least by more than this factor support no verdict."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """The median of the rounds, with the least and the greatest value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Summarize the values of the rounds; there must be at least one."""
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def of_ratios(cls, ours: Sequence[float], theirs: Sequence[float]) -> Self:
        """Summarize ours/theirs, round by round.

        The two values of one round were measured directly after each other, so a disturbance that
        affects both cancels out; a ratio of two medians would keep it.
        """
        return cls.of([one / other for one, other in zip(ours, theirs, strict=True)])

    @classmethod
    def of_middle_half(cls, values: Sequence[float]) -> Self:
        """Summarize the middle half of the rounds, which a few disturbed ones do not change."""
        out = len(values) // 4
        return cls.of(sorted(values)[out : len(values) - out])

    @property
    def noisy(self) -> bool:
        """Return whether the rounds differ too much to support a verdict."""
        return self.high > NOISY * self.low

    def map(self, function: Callable[[float], float]) -> "Spread":
        """Convert the unit by a function that keeps or reverses the order of its values."""
        first, last = function(self.low), function(self.high)
        return Spread(function(self.median), min(first, last), max(first, last))

    def format(self, write: Callable[[float], str]) -> str:
        """Write it as `median (low..high)`."""
        return f"{write(self.median)} ({write(self.low)}..{write(self.high)})"
