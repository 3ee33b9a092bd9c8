# SPDX-License-Identifier: Apache-2.0
"""Percentiles of times, from an HDR histogram, and the files that its other tools read.

The library is HdrHistogram's own for Python. It is fed after a run, with counts, so its cost is
nowhere near a measurement; what it keeps is true to three digits from a nanosecond to an hour.
"""

import importlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

INSTALL: Final = "pip install 'shmnd[bench]' (or hdrhistogram alone)"
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)

_LONGEST_NS: Final = 3600 * 10**9
_DIGITS: Final = 3


class HistogramMissing(ImportError):
    """HdrHistogram is not installed."""


def missing() -> str | None:
    """Say why there can be no percentiles; None when there can."""
    try:
        importlib.import_module("hdrh.histogram")
    except ImportError as exc:
        return f"latencies need HdrHistogram ({exc}): {INSTALL}"
    return None


def demand() -> None:
    """Raise what says how to get HdrHistogram, if it is not there."""
    problem = missing()
    if problem:
        raise HistogramMissing(problem)


class Histogram:
    """Times of rounds, told as microseconds of one of their `ways`."""

    def __init__(self, ways: int = 1) -> None:
        demand()
        library: Any = importlib.import_module("hdrh.histogram")
        self._counts: Any = library.HdrHistogram(1, _LONGEST_NS, _DIGITS)
        self._scale = 1e-3 / ways
        # For mean and deviation: the library would go through every place it has, taken or not.
        self._samples: Mapping[int, int] = {}

    @classmethod
    def of(cls, samples: Mapping[int, int], ways: int = 1) -> Self:
        """Take counted nanoseconds of whole rounds."""
        self = cls(ways)
        self._samples = samples
        for nanoseconds, count in samples.items():
            self._counts.record_value(min(max(nanoseconds, 1), _LONGEST_NS), count)
        return self

    @property
    def count(self) -> int:
        """How many rounds there are."""
        return int(self._counts.get_total_count())

    @property
    def least(self) -> float:
        """The shortest."""
        return float(self._counts.get_min_value() * self._scale)

    @property
    def greatest(self) -> float:
        """The longest."""
        return float(self._counts.get_max_value() * self._scale)

    @property
    def mean(self) -> float:
        """The mean."""
        return self._mean_ns() * self._scale

    def _mean_ns(self) -> float:
        return sum(ns * count for ns, count in self._samples.items()) / max(self.count, 1)

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        mean = self._mean_ns()
        squares = sum(count * (ns - mean) ** 2 for ns, count in self._samples.items())
        return math.sqrt(squares / max(self.count, 1)) * self._scale

    def percentile(self, percent: float) -> float:
        """Return the time that so many percent of the rounds did not exceed."""
        return float(self._counts.get_value_at_percentile(percent) * self._scale)

    def curve(self) -> list[tuple[float, float]]:
        """Return percentiles and times for a plot: ever closer to 100."""
        percents, step = [0.0], 0.5
        while step * self.count >= 1:
            percents += [100 * (1 - step * part / 8) for part in range(8, 4, -1)]
            step /= 2
        return [(percent, self.percentile(percent)) for percent in percents]

    def as_json(self) -> dict[str, Any]:
        """Return the figures in microseconds, and the whole in HdrHistogram's own encoding."""
        return {
            "count": self.count,
            "min": self.least,
            **{f"p{percent:g}": self.percentile(percent) for percent in PERCENTILES},
            "max": self.greatest,
            "mean": self.mean,
            "stdev": self.deviation,
            "hdr": self._counts.encode().decode(),
        }

    def write_percentiles(self, file: Any) -> None:
        """Write the table that HdrHistogram's plotter reads, in microseconds."""
        self._counts.output_percentile_distribution(file, 1 / self._scale)

    def write_log_line(self, writer: Any) -> None:
        """Add itself to a log of histograms, without a time of its own."""
        self._counts.set_start_time_stamp(0)
        self._counts.set_end_time_stamp(0)
        writer.output_interval_histogram(self._counts)


def write(path: Path, histograms: Iterable[tuple[str, Histogram]]) -> None:
    """Write histograms to a file: percentile tables if it ends in .hgrm, else a histogram log.

    The log holds nanoseconds of whole rounds, there and back; tables tell microseconds one way.
    """
    if path.suffix == ".hgrm":
        with path.open("wb") as tables:
            for name, histogram in histograms:
                tables.write(f"# {name}\n".encode())
                histogram.write_percentiles(tables)
        return
    library: Any = importlib.import_module("hdrh.log")
    with path.open("w") as log:
        writer = library.HistogramLogWriter(log)
        writer.output_comment("[nanoseconds of a whole round of the benchmark's loop]")
        writer.output_log_format_version()
        writer.output_legend()
        for name, histogram in histograms:
            log.write(f"Tag={'_'.join(name.replace(',', '').split())},")
            histogram.write_log_line(writer)
