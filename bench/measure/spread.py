# SPDX-License-Identifier: Apache-2.0
"""A figure and how far it moved between the rounds of one run."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Self


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds with the least and the greatest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Sum up the values of the rounds; there must be at least one."""
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def of_ratios(cls, ours: Sequence[float], theirs: Sequence[float]) -> Self:
        """Sum up ours/theirs, round by round.

        The two values of one round were taken right after each other, so what the machine did
        to both cancels out; a ratio of two medians would keep it.
        """
        return cls.of([one / other for one, other in zip(ours, theirs, strict=True)])

    def map(self, function: Callable[[float], float]) -> "Spread":
        """Change the unit by a function that keeps or turns the order of its values."""
        first, last = function(self.low), function(self.high)
        return Spread(function(self.median), min(first, last), max(first, last))

    def format(self, write: Callable[[float], str]) -> str:
        """Write it as `median (low..high)`."""
        return f"{write(self.median)} ({write(self.low)}..{write(self.high)})"
