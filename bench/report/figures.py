# SPDX-License-Identifier: Apache-2.0
"""Answers as rows: the columns of perftest, and one flat form for spreadsheets."""

import csv
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from ..measure.histogram import PERCENTILES, Histogram
from ..subjects.rounds import Answer
from .table import Notes, number, render

LATENCY_HEADINGS: Final = (
    "#bytes",
    "#iterations",
    "t_min[usec]",
    "t_max[usec]",
    "t_typical[usec]",
    "t_avg[usec]",
    "t_stdev[usec]",
    "90%",
    "99%",
    "99.9%",
    "99.99%",
    "99.999%",
)
RATE_HEADINGS: Final = (
    "#bytes",
    "#iterations",
    "BW peak[MB/sec]",
    "BW average[MB/sec]",
    "MsgRate[Mpps]",
)
MEGABYTE: Final = 1e6


def histogram_of(answer: Answer) -> Histogram | None:
    """Return the times of all rounds; None where single rounds were not seen."""
    if not answer.samples or answer.error is not None:
        return None
    return Histogram.of(answer.samples, answer.question.ways)


def latency_cells(answer: Answer, notes: Notes) -> list[str]:
    """Return a row of times; `t_typical` is the median, as in perftest."""
    size, rounds = str(answer.question.size), f"{answer.count * len(answer.values)}"
    histogram = histogram_of(answer)
    if answer.spread is None:
        return [size, "0", notes.refer(answer.reason), *[""] * (len(LATENCY_HEADINGS) - 3)]
    if histogram is None:
        # A program of its own reports a mean and nothing else.
        mean = number(answer.spread.median * 1e6)
        return [size, rounds, "", "", "", mean, *[""] * (len(LATENCY_HEADINGS) - 6)]
    typical, *percentiles = (histogram.percentile(percent) for percent in PERCENTILES)
    times = [histogram.least, histogram.greatest, typical, histogram.mean, histogram.deviation]
    return [size, rounds, *map(number, [*times, *percentiles])]


def rate_cells(answer: Answer, notes: Notes) -> list[str]:
    """Return a row of rates; the peak is the best round, the average that of all rounds."""
    size, rounds = answer.question.size, f"{answer.count * len(answer.values)}"
    if answer.spread is None:
        return [str(size), "0", notes.refer(answer.reason), "", ""]
    mean = statistics.fmean(answer.values)
    peak = size / answer.spread.low / MEGABYTE
    average = size / mean / MEGABYTE
    return [str(size), rounds, number(peak), number(average), number(1e-6 / mean)]


def table(
    answers: Iterable[Answer],
    headings: Sequence[str],
    cells: Callable[[Answer, Notes], list[str]],
    lead: Sequence[tuple[str, Callable[[Answer], str]]] = (),
) -> str:
    """Return answers below each other, with columns of the command's own before perftest's."""
    notes = Notes()
    names = [*(name for name, _ in lead), *headings]
    rows = [[*(tell(answer) for _, tell in lead), *cells(answer, notes)] for answer in answers]
    right = " " * len(lead) + "r" * len(headings)
    return "\n".join([render(names, rows, right=right), *notes.lines()])


CSV_COLUMNS: Final = (
    *("subject", "kind", "size", "idle", "how", "rounds", "iterations"),
    *("seconds_per_message", "seconds_least", "seconds_greatest"),
    *("messages_per_second", "bytes_per_second"),
    *("t_min_us", "t_max_us", "t_avg_us", "t_stdev_us"),
    *(f"p{percent:g}_us" for percent in PERCENTILES),
    "error",
)


def write_csv(path: Path, answers: Iterable[Answer]) -> None:
    """Write one line per answer; a failed one has its error and no figure."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, CSV_COLUMNS, restval="")
        writer.writeheader()
        for answer in answers:
            writer.writerow(_flat(answer))


def _flat(answer: Answer) -> dict[str, Any]:
    question = answer.question
    row: dict[str, Any] = {
        "subject": answer.subject,
        "kind": question.kind.value,
        "size": question.size,
        "idle": question.idle,
        "how": question.how.describe(),
        "error": answer.error or "",
    }
    if answer.spread is None:
        return row
    mean = statistics.fmean(answer.values)
    row |= {
        "rounds": len(answer.values),
        "iterations": answer.count * len(answer.values),
        "seconds_per_message": mean,
        "seconds_least": answer.spread.low,
        "seconds_greatest": answer.spread.high,
        "messages_per_second": 1 / mean,
        "bytes_per_second": question.size / mean,
    }
    histogram = histogram_of(answer)
    if histogram is not None:
        row |= {
            "t_min_us": histogram.least,
            "t_max_us": histogram.greatest,
            "t_avg_us": histogram.mean,
            "t_stdev_us": histogram.deviation,
            **{f"p{percent:g}_us": histogram.percentile(percent) for percent in PERCENTILES},
        }
    return row
