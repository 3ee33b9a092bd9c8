# SPDX-License-Identifier: Apache-2.0
"""Steps of the time over the size of a message, by the kinds of memory at its two ends.

The sizes grow by a third each. A time may grow by as much from one size to the next, and by what
the added bytes take besides; more is a step, and belongs to a limit between two paths of a message
or to the end of a cache. The usual loop is the compiled one, because the one in Python may be so
much faster or slower from one second to the next as a step is high.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Final

from ..command import apart, options
from ..command.frame import Report, perform
from ..floors.memcpy import Memcpy, PrivateMemcpy
from ..measure.how import How, Memory
from ..measure.question import Kind, Question, format_size
from ..measure.spread import Spread
from ..report.table import Notes, number, render
from ..subjects.rounds import Answer, Answers
from ..subjects.subject import Subject

HELP = "time over size, by a third at a time, and where it steps up, for each kind of memory"
EXAMPLE = "shmnd bench sweep --from 256 --to 4K --quick"

FACTOR: Final = 1.3
"""From one size to the next; a greater ratio of their times is a step."""
_LAST: Final = 16 << 20
_LONG: Final = 4096
"""The calls take most of the time of a shorter message, so it does not show the time of a byte."""
_KINDS: Final = {"pingpong": Kind.PINGPONG, "ping": Kind.STREAM}
_WAYS: Final = {
    "private-private": How(memory=Memory.PRIVATE),
    "private-shared": How(memory=Memory.PRIVATE, into=Memory.SEGMENT),
    "shared-private": How(into=Memory.PRIVATE),
    "shared-shared": How(),
    "mixed-shared": How(memory=Memory.MIXED, into=Memory.SEGMENT),
    "mixed-mixed": How(memory=Memory.MIXED),
}
_HEADINGS: Final = ("loop", "kind", "memory", "sizes", "time", "without added bytes", "")


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """One kind of traffic through one kind of memory, at all sizes."""

    kind: str
    way: str
    questions: tuple[Question, ...]

    @classmethod
    def of(cls, kind: str, way: str, sizes: Sequence[int]) -> "Series":
        """Return a series with the questions of each size."""
        how = _WAYS[way]
        return cls(kind, way, tuple(Question(_KINDS[kind], size, how=how) for size in sizes))


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Two neighbouring sizes, and how many times as long the larger one takes."""

    subject: str
    kind: str
    way: str
    below: int
    above: int
    ratio: Spread
    """Of the two times, in the middle half of the rounds."""
    beyond: Spread
    """The same without what the added bytes take at the best rate of the series."""

    @property
    def word(self) -> str:
        """The judgement: "step", "unsure" if the rounds disagree, "noisy", or "" for no step."""
        if self.beyond.median <= FACTOR:
            return ""
        if self.beyond.noisy:
            return "noisy"
        return "step" if self.beyond.low > FACTOR else "unsure"

    def cells(self) -> list[str]:
        """Return a row of the table."""
        sizes = f"{format_size(self.below)} to {format_size(self.above)}"
        ratios = [f"x {spread.format(number)}" for spread in (self.ratio, self.beyond)]
        return [self.subject, self.kind, self.way, sizes, *ratios, self.word]

    def as_json(self) -> dict[str, Any]:
        """Return the form for reports."""
        return {**dataclasses.asdict(self), "word": self.word}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    sizes = parser.add_argument_group("sizes")
    for name, usual in (("from", 1), ("to", _LAST)):
        sizes.add_argument(
            f"--{name}",
            type=options.sizes,
            default=[usual],
            metavar="N",
            dest=f"{name}_size",
            help=f"bytes, as in 40 or 64K (default {format_size(usual)})",
        )
    mixed = [way for way, how in _WAYS.items() if how.is_mixed]
    plain = [way for way in _WAYS if way not in mixed]
    also = f"; with --engine python also {','.join(mixed)}"
    for name, known, default, more, text in (
        ("kinds", _KINDS, [*_KINDS], "", "one message after another, and streams"),
        ("ways", _WAYS, plain, also, "memory of the sender and of the receiver"),
    ):
        parser.add_argument(
            f"--{name}",
            type=options.words(known),
            default=default,
            metavar=f"{name[:-1].upper()},…",
            help=f"{text} (default {','.join(default)}{more})",
        )
    options.add_engine(parser)
    parser.set_defaults(engine="native")
    parser.add_argument(
        "--memcpy",
        action="store_true",
        help="next to the streams from 4 KiB on, measure memcpy: where it has a step, caches end",
    )
    parser.add_argument("--every", action="store_true", help="show every size, not only the steps")
    options.add_common(parser)
    apart.add_options(parser, "sweep")


def run(args: argparse.Namespace) -> int:
    """Measure, and print the steps."""
    swept = sizes_between(args.from_size[0], args.to_size[0])
    if len(swept) < 2:
        args.complain("--from and --to leave fewer than two sizes")
    asked = [Series.of(kind, way, swept) for kind in args.kinds for way in args.ways]
    subjects: list[Subject] = [kind(args.namespace) for kind in options.ENGINES[args.engine]]
    if args.memcpy:
        subjects += [Memcpy(), PrivateMemcpy()]

    def conclude(answers: Answers) -> Report:
        notes = Notes()
        pairs = [
            step
            for series in asked
            for subject in subjects
            for step in steps_of(series, subject.name, answers)
        ]
        found = [step for step in pairs if step.word]
        parts = []
        if args.every:
            rows = [_row(answer, notes) for answer in answers]
            parts.append(render(("what", "loop", "µs, median (least..greatest)"), rows))
        if found:
            parts.append(render(_HEADINGS, [step.cells() for step in found]))
        parts.append(summary(pairs))
        parts += filter(None, ["\n".join(notes.lines())])
        data = {
            "command": "sweep",
            "compared": len(pairs),
            "steps": [step.as_json() for step in found],
        }
        return Report("\n\n".join(parts), data, any(answer.error for answer in answers))

    questions = [question for series in asked for question in series.questions]
    # Series after series: the memory of all sizes together is that of one series.
    return perform(args, questions, subjects, conclude, together=_series_of)


def sizes_between(first: int, last: int) -> list[int]:
    """Return the sizes from one to the other, each about a third larger than the one before."""
    found, size = [], first
    while size <= last:
        found.append(size)
        size = max(size + 1, round(size * FACTOR))
    return found


def steps_of(series: Series, subject: str, answers: Answers) -> list[Step]:
    """Return the step of each size from the one before it, by rounds."""
    rate = _seconds_per_byte(series, subject, answers)
    found = []
    for one, other in itertools.pairwise(series.questions):
        below, above = answers.get(subject, one), answers.get(subject, other)
        if below and above and below.spread and above.spread:
            rounds = [*zip(above.values, below.values, strict=True)]
            added = (other.size - one.size) * rate
            ratio, beyond = (
                Spread.of_middle_half([(time - less) / before for time, before in rounds])
                for less in (0.0, added)
            )
            step = Step(subject, series.kind, series.way, one.size, other.size, ratio, beyond)
            found.append(step)
    return found


def summary(pairs: Sequence[Step]) -> str:
    """Return the number of steps, and of those that could not be judged."""
    words = [step.word for step in pairs]
    text = f"{words.count('step')} steps above {FACTOR:g} between {len(pairs)} pairs of sizes"
    rest = [f"{words.count(word)} {word}" for word in ("unsure", "noisy") if word in words]
    return ", ".join([text, *rest])


def _seconds_per_byte(series: Series, subject: str, answers: Answers) -> float:
    """Return what a byte takes where it takes least; 0 when only short messages were measured."""
    found = [answers.get(subject, each) for each in series.questions if each.size >= _LONG]
    spreads = [(one.spread, one.question.size) for one in found if one]
    return min((spread.median / size for spread, size in spreads if spread), default=0.0)


def _series_of(question: Question) -> tuple[Kind, How]:
    return question.kind, question.how


def _row(answer: Answer, notes: Notes) -> list[str]:
    if answer.spread is None:
        return [answer.question.label, answer.subject, notes.refer(answer.reason)]
    return [
        answer.question.label,
        answer.subject,
        answer.spread.map(_microseconds).format(number),
    ]


def _microseconds(seconds: float) -> float:
    return seconds * 1e6
