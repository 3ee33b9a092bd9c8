# SPDX-License-Identifier: Apache-2.0
"""Pictures of a run: latency against size, percentile curves, bandwidth against size."""

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..measure.question import format_size
from ..subjects.rounds import Answer
from .figures import MEGABYTE, histogram_of

INSTALL: Final = "pip install 'shmnd[bench]' (or matplotlib alone)"
TIMES: Final = "µs (median, least to greatest of rounds)"
_WIDTH, _HEIGHT, _DPI = 7.0, 4.6, 110
_COLOURS: Final = (
    *(f"C{number}" for number in range(10)),
    *("black", "gold", "navy", "deeppink", "darkgreen", "sienna"),
)
Panel = Callable[[Any, Sequence[Answer], dict[str, str]], bool]
"""Draws on axes, with the colours of the names so far; returns whether there is something to draw.

Without axes it draws nothing.
"""
_TAILS: Final = (0, 90, 99, 99.9, 99.99, 99.999, 99.9999)


def missing() -> str | None:
    """Return why no plots can be made, or None if they can."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as exc:
        return f"--plot needs matplotlib ({exc}): {INSTALL}"
    return None


def draw(
    path: Path,
    answers: Iterable[Answer],
    title: str = "",
    panels: Sequence[Panel] = (),
    columns: int = 0,
) -> None:
    """Plot the answers into one PNG file; without panels, with the usual ones.

    The panels are next to each other, at most `columns` of them; 0: all.
    """
    good = [answer for answer in answers if answer.spread is not None]
    panels = [panel for panel in panels or _USUAL if panel(None, good, {})]
    if not panels:
        raise ValueError("there is nothing to draw: no question was answered")
    wide = min(columns or len(panels), len(panels))
    high = math.ceil(len(panels) / wide)
    # Not through pyplot: that would search for a screen, and keep the figure.
    figure: Any = importlib.import_module("matplotlib.figure").Figure(
        figsize=(_WIDTH * wide, _HEIGHT * high), dpi=_DPI, layout="constrained"
    )
    colours: dict[str, str] = {}
    for place, panel in enumerate(panels, 1):
        panel(figure.add_subplot(high, wide, place), good, colours)
    if title:
        figure.suptitle(title, fontsize="medium")
    figure.savefig(path, format="png")


def _sizes(axes: Any, answers: Sequence[Answer], colours: dict[str, str]) -> bool:
    """Plot latency against size; return whether there are any figures."""
    found = [answer for answer in answers if not answer.question.is_stream]
    if axes is None or not found:
        return bool(found)
    lines(axes, _series(found), microseconds, look=_coloured(colours))
    axes.set(xlabel="bytes", ylabel=TIMES, title="Latency")
    return True


def _bandwidths(axes: Any, answers: Sequence[Answer], colours: dict[str, str]) -> bool:
    """Plot bandwidth against size; return whether there are any figures."""
    found = [answer for answer in answers if answer.question.is_stream]
    if axes is None or not found:
        return bool(found)
    lines(axes, _series(found), bandwidth, look=_coloured(colours))
    axes.set(xlabel="bytes", ylabel="MB/s", title="Bandwidth")
    return True


def microseconds(answer: Answer, seconds: float) -> float:
    """Return a time as a panel shows it."""
    return seconds * 1e6


def bandwidth(answer: Answer, seconds: float) -> float:
    """Return the MB/s of messages that take so long."""
    return answer.question.size / seconds / MEGABYTE


def _size(answer: Answer) -> int:
    return max(answer.question.size, 1)


def lines(
    axes: Any,
    series: Mapping[str, Sequence[Answer]],
    value: Callable[[Answer, float], float],
    *,
    look: Callable[[str], dict[str, Any]],
    at: Callable[[Answer], int] = _size,
    legend: str = "best",
) -> None:
    """Draw one line per name, with the range of its rounds, over the size or another number.

    `legend` is the place of the legend, in the words of matplotlib.
    """
    for name, answers in series.items():
        points = [
            (
                at(answer),
                *(value(answer, each) for each in (spread.median, spread.low, spread.high)),
            )
            for answer in sorted(answers, key=at)
            if (spread := answer.spread) is not None
        ]
        axes.errorbar(
            [place for place, *_ in points],
            [middle for _, middle, _, _ in points],
            yerr=[
                [middle - min(ends) for _, middle, *ends in points],
                [max(ends) - middle for _, middle, *ends in points],
            ],
            marker="o",
            markersize=3.5,
            capsize=2,
            label=name,
            **look(name),
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.grid(True, which="major", alpha=0.4)
    # The handles are so long that strokes differ.
    axes.legend(fontsize="x-small", handlelength=3.5, loc=legend)


def _series(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = {}
    kinds = {answer.question.kind for answer in answers}
    for answer in answers:
        question = answer.question
        words = [answer.subject, question.how.describe()]
        if len(kinds) > 1:
            words.insert(1, question.kind.value)
        if question.idle:
            words.append(f"{question.idle:,} idle")
        found.setdefault(", ".join(filter(None, words)), []).append(answer)
    return found


def _curves(axes: Any, answers: Sequence[Answer], colours: dict[str, str]) -> bool:
    """Plot percentile curves of the smallest message with some; return whether there are any."""
    found = [answer for answer in answers if answer.samples and not answer.question.is_stream]
    if axes is None or not found:
        return bool(found)
    size = min(answer.question.size for answer in found)
    found = [answer for answer in found if answer.question.size == size]
    for name, row in _series(found).items():
        histogram = histogram_of(row[0])
        if histogram is None:
            continue
        places, times = zip(*((_nines(p), time) for p, time in histogram.curve()), strict=True)
        axes.plot(places, times, label=name, color=colour(colours, name))
    ticks = [tail for tail in _TAILS if _nines(tail) <= axes.get_xlim()[1]]
    axes.set_xticks([_nines(tail) for tail in ticks], [f"{tail:g}" for tail in ticks])
    axes.set_yscale("log")
    axes.set(xlabel="percentile", ylabel="µs", title=f"Percentiles, {format_size(size)}")
    axes.grid(True, which="major", alpha=0.4)
    axes.legend(fontsize="x-small")
    return True


def _nines(percent: float) -> float:
    """Return the place of a percentile: 90, 99, 99.9 … are at equal distances."""
    return -math.log10(1 - min(percent, 99.99999) / 100)


def colour(colours: dict[str, str], name: str) -> str:
    """Return each series the same colour in every panel."""
    return colours.setdefault(name, _COLOURS[len(colours) % len(_COLOURS)])


def _coloured(colours: dict[str, str]) -> Callable[[str], dict[str, Any]]:
    return lambda name: {"color": colour(colours, name)}


_USUAL: Final[tuple[Panel, ...]] = (_sizes, _curves, _bandwidths)
