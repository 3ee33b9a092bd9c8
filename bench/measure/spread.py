# SPDX-License-Identifier: Apache-2.0
"""A figure and its spread over the rounds of one run."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Final, Self

NOISY: Final = 2.0
"""A spread is noisy if its greatest value exceeds the least by more than this factor."""
CONFIDENCE: Final = 0.95
"""With this probability at least, `of_median` encloses the median of all possible rounds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """The median of the rounds, with the least and the greatest value that count."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return a summary of the values of the rounds; there must be at least one."""
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def of_median(cls, values: Sequence[float]) -> Self:
        """Return the median of the values and an interval that encloses the true one.

        Each round is above the true median with a probability of one half, whatever disturbs the
        machine. So as many values are left out at each end as CONFIDENCE permits: none of up to
        eight, one of nine, three of fifteen. With fewer than six there is no such interval: it is
        the range.
        """
        count = len(values)
        out = 0
        beyond = 1  # of the 2**count ways to lie above and below, those with up to `out` above
        while (beyond := beyond + math.comb(count, out + 1)) <= 2**count * (1 - CONFIDENCE) / 2:
            out += 1
        return cls.of(sorted(values)[out : count - out])

    @classmethod
    def of_ratios(cls, ours: Sequence[float], theirs: Sequence[float]) -> Self:
        """Return a summary of ours/theirs, round by round, as `of_median` does.

        The two values of one round were measured directly after each other, so a disturbance that
        affects both cancels out; a ratio of two medians would keep it.
        """
        return cls.of_median([one / other for one, other in zip(ours, theirs, strict=True)])

    @classmethod
    def of_middle_half(cls, values: Sequence[float]) -> Self:
        """Return a summary of the middle half of the rounds: outliers do not count."""
        out = len(values) // 4
        return cls.of(sorted(values)[out : len(values) - out])

    @property
    def noisy(self) -> bool:
        """Whether the rounds differ so much that the median alone says little."""
        return self.high > NOISY * self.low

    def map(self, function: Callable[[float], float]) -> "Spread":
        """Return it in another unit, by a function that keeps or reverses the order."""
        first, last = function(self.low), function(self.high)
        return Spread(function(self.median), min(first, last), max(first, last))

    def format(self, write: Callable[[float], str]) -> str:
        """Return it as text, `median (low..high)`."""
        return f"{write(self.median)} ({write(self.low)}..{write(self.high)})"
