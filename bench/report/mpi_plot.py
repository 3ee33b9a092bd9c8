# SPDX-License-Identifier: Apache-2.0
"""The picture of programs for mpi4py: messages over size, collectives over size and ranks.

A colour is an implementation; lines of one colour differ in their strokes.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..measure.how import USUAL
from ..measure.question import Kind, Question
from ..subjects.rounds import Answer
from .plot import TIMES, Panel, bandwidth, colour, lines, microseconds

COLUMNS: Final = 3
_STROKES: Final = ("-", "--", ":", "-.")
_ROOM: Final = 2
"""How far the axis of ranks goes beyond the lines, as a factor: the legend is there."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Messages:
    """A panel over the sizes of one kind."""

    title: str
    kind: Kind
    variant: Callable[[Question], str]

    def __call__(self, axes: Any, answers: Sequence[Answer], colours: dict[str, str]) -> bool:
        found = [answer for answer in answers if answer.question.kind is self.kind]
        if axes is None or not found:
            return bool(found)
        series, look = _series(found, self.variant, colours)
        streams = found[0].question.is_stream
        lines(axes, series, bandwidth if streams else microseconds, look=look)
        axes.set(xlabel="bytes", ylabel="MB/s" if streams else TIMES, title=self.title)
        return True


def _over_ranks(axes: Any, answers: Sequence[Answer], colours: dict[str, str]) -> bool:
    """Plot small collectives against the number of ranks; return whether there are any."""
    kinds = (Kind.BARRIER, Kind.BCAST, Kind.ALLREDUCE, Kind.ALLTOALL)
    found = [
        answer
        for answer in answers
        if answer.question.kind in kinds and answer.question.size in (0, 8)
    ]
    if axes is None or not found:
        return bool(found)
    series, look = _series(found, _without_ranks, colours)
    lines(axes, series, microseconds, look=look, at=_ranks, legend="center right")
    ticks = sorted(set(map(_ranks, found)))
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.set_xlim(right=_ROOM * ticks[-1])
    axes.set(xlabel="ranks", ylabel=TIMES, title="Collectives over ranks")
    return True


def _series(
    answers: Sequence[Answer], variant: Callable[[Question], str], colours: dict[str, str]
) -> tuple[dict[str, list[Answer]], Callable[[str], dict[str, Any]]]:
    """Return the answers of each line, and how a line looks."""
    series: dict[str, list[Answer]] = {}
    looks: dict[str, dict[str, Any]] = {}
    variants = list(dict.fromkeys(variant(answer.question) for answer in answers))
    for answer in answers:
        # The name of a subject of more than two ranks has their number behind a comma.
        implementation = answer.subject.partition(",")[0]
        words = variant(answer.question)
        name = ", ".join(filter(None, (implementation, words)))
        series.setdefault(name, []).append(answer)
        stroke = _STROKES[variants.index(words) % len(_STROKES)]
        looks[name] = {"color": colour(colours, implementation), "linestyle": stroke}
    return series, looks.__getitem__


def _ranks(answer: Answer) -> int:
    return answer.question.how.processes


def _without_ranks(question: Question) -> str:
    return dataclasses.replace(question, how=USUAL).label


def _manner(question: Question) -> str:
    return question.how.describe()


def _number_of_ranks(question: Question) -> str:
    return f"{question.how.processes} ranks"


PANELS: Final[tuple[Panel, ...]] = (
    _Messages("Send and Recv, one way", Kind.PINGPONG, _manner),
    _Messages("Bandwidth of a stream", Kind.STREAM, _manner),
    _over_ranks,
    _Messages("Bcast", Kind.BCAST, _number_of_ranks),
    _Messages("Allreduce", Kind.ALLREDUCE, _number_of_ranks),
    _Messages("Alltoall", Kind.ALLTOALL, _number_of_ranks),
)
