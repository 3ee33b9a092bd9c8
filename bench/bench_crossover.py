# SPDX-License-Identifier: Apache-2.0
"""Where does one way of moving data begin to beat another? The two thresholds of an adapter.

An adapter reports from which size on registered memory beats inline data, and from which size on
Read and Write beat Send and Receive. Here both are measured, beside what is reported.
"""

import argparse
from collections.abc import Sequence

from . import apart
from .frame import Report, perform
from .how import How
from .options import ENGINES, add_common, add_engine
from .question import Kind, Question, format_size
from .rounds import Answer, Answers
from .table import Notes, number, render

HELP = "the sizes from which registered memory beats inline, and Write beats Send"
EXAMPLE = "shmnd bench crossover --quick"

_INLINE = How(inline=1024)
_SMALL = (16, 64, 128, 256, 512, 1024)
_LARGE = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
_PAIRS = [
    *(
        (Question(Kind.PINGPONG, size, how=_INLINE), Question(Kind.PINGPONG, size))
        for size in _SMALL
    ),
    *((Question(Kind.STREAM, size), Question(Kind.WRITE_STREAM, size)) for size in _LARGE),
]
_EVEN = 1.02
"""A ratio below it decides nothing."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_engine(parser)
    add_common(parser)
    apart.add_options(parser, "crossover")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    subjects = [subject(args.namespace) for subject in ENGINES[args.engine]]
    questions = [question for pair in _PAIRS for question in pair]
    return perform(args, questions, subjects, _conclude)


def _conclude(answers: Answers) -> Report:
    notes = Notes()
    given = {(answer.subject, answer.question): answer for answer in answers}
    subjects = list(dict.fromkeys(answer.subject for answer in answers))
    rows, said = [], []
    for subject in subjects:
        ratios = []
        for one, other in _PAIRS:
            first, second = given[subject, one], given[subject, other]
            ratio = _ratio(first, second)
            ratios.append(ratio)
            rows.append(_row(first, second, ratio, notes))
        said += _thresholds(subject, ratios)
    headings = ("what", "µs", "instead", "µs", "ratio")
    text = "\n".join([render(headings, rows, right=" r rr"), "", *said, *notes.lines()])
    return Report(text, {"command": "crossover"}, any(answer.error for answer in answers))


def _ratio(first: Answer, second: Answer) -> float | None:
    """How many times as long the first way takes."""
    if first.spread is None or second.spread is None:
        return None
    return first.spread.median / second.spread.median


def _row(first: Answer, second: Answer, ratio: float | None, notes: Notes) -> tuple[str, ...]:
    cells = []
    for answer in (first, second):
        cells.append(answer.question.label)
        if answer.spread is None:
            cells.append(notes.refer(answer.reason))
        else:
            cells.append(number(answer.spread.median * 1e6))
    return (*cells, "" if ratio is None else f"{ratio:.2f}")


def _thresholds(subject: str, ratios: Sequence[float | None]) -> list[str]:
    small, large = ratios[: len(_SMALL)], ratios[len(_SMALL) :]
    inline, write = _crossover(_SMALL, small), _crossover(_LARGE, large)
    from shmnd.info import LIMITS

    return [
        f"{subject}: registered memory beats inline from {inline}; reported: "
        f"{format_size(LIMITS.inline_request_threshold)}",
        f"{subject}: Write beats Send from {write}; reported: "
        f"{format_size(LIMITS.large_request_threshold)}",
    ]


def _crossover(sizes: Sequence[int], ratios: Sequence[float | None]) -> str:
    """The first size from which on the second way is the faster one at every size measured."""
    found = None
    for size, ratio in zip(reversed(sizes), reversed(ratios), strict=True):
        if ratio is None:
            return "no size, for want of figures"
        if ratio <= _EVEN:
            break
        found = size
    return "no size measured" if found is None else format_size(found)
