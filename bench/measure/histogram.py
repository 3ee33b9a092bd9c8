# SPDX-License-Identifier: Apache-2.0
"""Percentiles of times, and the files of HdrHistogram.

The times are counted in nanoseconds, so percentiles are exact and need no library. Only the files
of `--hdr`, and the encoded histogram in JSON, need the library of HdrHistogram for Python.
"""

import bisect
import importlib
import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

INSTALL: Final = "pip install 'shmnd[bench]' (or hdrhistogram alone)"
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)

_LONGEST_NS: Final = 3600 * 10**9
_DIGITS: Final = 3


def missing() -> str | None:
    """Return why no histogram files can be written, or None if they can."""
    try:
        importlib.import_module("hdrh.histogram")
    except ImportError as exc:
        return f"--hdr needs HdrHistogram ({exc}): {INSTALL}"
    return None


class Histogram:
    """The times of rounds, in microseconds of one of their `ways`."""

    def __init__(self, samples: Mapping[int, int], ways: int = 1) -> None:
        self._scale = 1e-3 / ways
        self._samples = samples
        self._times = sorted(samples)
        self._below = list(itertools.accumulate(samples[time] for time in self._times))
        """For each time the number of rounds that did not exceed it."""

    @classmethod
    def of(cls, samples: Mapping[int, int], ways: int = 1) -> Self:
        """Return the histogram of whole rounds, given as counts of nanoseconds."""
        return cls(samples, ways)

    @property
    def count(self) -> int:
        """The number of rounds."""
        return self._below[-1] if self._below else 0

    @property
    def least(self) -> float:
        """The shortest time."""
        return self._times[0] * self._scale

    @property
    def greatest(self) -> float:
        """The longest time."""
        return self._times[-1] * self._scale

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
        """Return the least time that this percentage of the rounds did not exceed."""
        # Rounded, because 99.9 percent of 1,000 are 999 rounds, and 999.0000000000001 as a float.
        wanted = max(1, math.ceil(round(percent / 100 * self.count, 6)))
        return self._times[bisect.bisect_left(self._below, wanted)] * self._scale

    def curve(self) -> list[tuple[float, float]]:
        """Return percentiles and times for a plot, with more of them near 100."""
        percents, step = [0.0], 0.5
        while step * self.count >= 1:
            percents += [100 * (1 - step * part / 8) for part in range(8, 4, -1)]
            step /= 2
        return [(percent, self.percentile(percent)) for percent in percents]

    def as_json(self) -> dict[str, Any]:
        """Return the figures in microseconds, and HdrHistogram's encoding where it is installed."""
        return {
            "count": self.count,
            "min": self.least,
            **{f"p{percent:g}": self.percentile(percent) for percent in PERCENTILES},
            "max": self.greatest,
            "mean": self.mean,
            "stdev": self.deviation,
            "hdr": None if missing() else self._encoded().encode().decode(),
        }

    def _encoded(self) -> Any:
        """Return the rounds as an object of HdrHistogram, true to three digits."""
        library: Any = importlib.import_module("hdrh.histogram")
        counts = library.HdrHistogram(1, _LONGEST_NS, _DIGITS)
        for nanoseconds, count in self._samples.items():
            counts.record_value(min(max(nanoseconds, 1), _LONGEST_NS), count)
        return counts

    def write_percentiles(self, file: Any) -> None:
        """Write the table that HdrHistogram's plotter reads, in microseconds."""
        self._encoded().output_percentile_distribution(file, 1 / self._scale)

    def write_log_line(self, writer: Any) -> None:
        """Write one line to a log of histograms, without a time of its own."""
        counts = self._encoded()
        counts.set_start_time_stamp(0)
        counts.set_end_time_stamp(0)
        writer.output_interval_histogram(counts)


def write(path: Path, histograms: Iterable[tuple[str, Histogram]]) -> None:
    """Write histograms to a file: percentile tables if it ends in .hgrm, else a histogram log.

    The log holds nanoseconds of whole rounds, there and back; tables hold microseconds of one way.
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
