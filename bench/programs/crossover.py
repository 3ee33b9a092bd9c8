# SPDX-License-Identifier: Apache-2.0
"""The sizes at which one kind of request becomes faster than another: two limits of an adapter.

An adapter reports the size below which inline data is faster than registered memory, and the size
above which Read and Write are faster than Send and Receive. This program measures both and prints
them next to the reported ones: for one message after another and for a stream. The usual loop is
the compiled one, because in Python the flag itself costs as much as the difference.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Final

from shmnd.info import LIMITS

from ..command import apart
from ..command.frame import Report, perform
from ..command.options import ENGINES, add_common, add_engine
from ..measure.how import USUAL, How
from ..measure.question import Kind, Question, format_size
from ..report.table import Notes, number, render
from ..subjects.rounds import Answer, Answers

HELP = "the sizes from which registered memory is faster than inline, and Write than Send"
EXAMPLE = "shmnd bench crossover --quick"

_SMALL: Final = (8, 48, 128, 256, 384, 512, 768, 1024)
_LARGE: Final = (64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
_INLINE: Final = How(inline=_SMALL[-1])
_EVEN: Final = 1.02
"""A ratio below it decides nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Contest:
    """One way against another at several sizes."""

    title: str
    sizes: tuple[int, ...]
    kinds: tuple[Kind, Kind]
    first: How
    reported: int

    def pair(self, size: int) -> tuple[Question, Question]:
        """Return the same traffic in both ways."""
        one, other = self.kinds
        return Question(one, size, how=self.first), Question(other, size)


_CONTESTS: Final = (
    *(
        _Contest(
            f"{name}: registered memory beats inline",
            _SMALL,
            (kind, kind),
            _INLINE,
            LIMITS.inline_request_threshold,
        )
        for name, kind in (("one by one", Kind.PINGPONG), ("stream", Kind.STREAM))
    ),
    *(
        _Contest(f"{name}: Write beats Send", _LARGE, kinds, USUAL, LIMITS.large_request_threshold)
        for name, kinds in (
            ("one by one", (Kind.PINGPONG, Kind.WRITE)),
            ("stream", (Kind.STREAM, Kind.WRITE_STREAM)),
        )
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_engine(parser)
    parser.set_defaults(engine="native")
    add_common(parser)
    apart.add_options(parser, "crossover")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    subjects = [subject(args.namespace) for subject in ENGINES[args.engine]]
    asked = (question for each in _CONTESTS for size in each.sizes for question in each.pair(size))
    return perform(args, list(dict.fromkeys(asked)), subjects, _conclude)


def _conclude(answers: Answers) -> Report:
    notes = Notes()
    rows, notices = [], []
    for subject in dict.fromkeys(answer.subject for answer in answers):
        for contest in _CONTESTS:
            ratios = []
            for size in contest.sizes:
                first, second = (answers.expect(subject, each) for each in contest.pair(size))
                ratios.append(_ratio(first, second))
                rows.append(_row(first, second, ratios[-1], notes))
            found = _crossover(contest.sizes, ratios)
            reported = format_size(contest.reported)
            notices.append(f"{subject}, {contest.title} from {found}; reported: {reported}")
    headings = ("what", "µs", "instead", "µs", "ratio")
    text = "\n".join([render(headings, rows, right=" r rr"), "", *notices, *notes.lines()])
    return Report(text, {"command": "crossover"}, any(answer.error for answer in answers))


def _ratio(first: Answer, second: Answer) -> float | None:
    """Return how many times as long the first way takes."""
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


def _crossover(sizes: Sequence[int], ratios: Sequence[float | None]) -> str:
    """Return the first size from which on the second way is faster at every size measured."""
    found = None
    for size, ratio in zip(reversed(sizes), reversed(ratios), strict=True):
        if ratio is None:
            return "no size, for want of figures"
        if ratio <= _EVEN:
            break
        found = size
    return "no size measured" if found is None else format_size(found)
