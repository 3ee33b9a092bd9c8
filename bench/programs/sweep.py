# SPDX-License-Identifier: Apache-2.0
"""Steps of the cost over the size of a message, by the kinds of memory at its two ends."""

import argparse
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Final

from ..command import apart, options
from ..command.frame import Report, perform
from ..measure.how import How, Memory
from ..measure.question import Kind, Question, format_size
from ..measure.spread import Spread
from ..report.table import Notes, number, render
from ..subjects.own import Shmnd
from ..subjects.rounds import Answer, Answers

HELP = "time over size, by a third at a time, and where it steps up, for each kind of memory"
EXAMPLE = "shmnd bench sweep --from 256 --to 4K --quick"

FACTOR: Final = 1.3
"""From one size to the next; a greater ratio of their times is a step."""
_LAST: Final = 16 << 20
_KINDS: Final = {"pingpong": Kind.PINGPONG, "ping": Kind.STREAM}
_WAYS: Final = {
    "private-private": How(memory=Memory.PRIVATE),
    "private-shared": How(memory=Memory.PRIVATE, into=Memory.SEGMENT),
    "shared-private": How(into=Memory.PRIVATE),
    "shared-shared": How(),
}
_USUAL: Final = ("private-private", "private-shared", "shared-private")


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """Two neighbouring sizes, and the ratio of their times."""

    way: str
    below: int
    above: int
    ratio: Spread

    @property
    def word(self) -> str:
        """Return what the ratio is: a step, one by some rounds only, or none."""
        if self.ratio.median <= FACTOR:
            return ""
        return "step" if self.ratio.low > FACTOR else "step (unsure)"

    def cells(self) -> list[str]:
        """Return a row of the table."""
        sizes = f"{format_size(self.below)} to {format_size(self.above)}"
        return [self.way, sizes, self.ratio.format(number), self.word]


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
    parser.add_argument(
        "--kind", choices=_KINDS, default="pingpong", help="ping-pong (default) or stream"
    )
    parser.add_argument(
        "--ways",
        type=options.words(_WAYS),
        default=list(_USUAL),
        metavar="WAY,…",
        help=f"memory of the sender and of the receiver: of {', '.join(_WAYS)} "
        f"(default {','.join(_USUAL)})",
    )
    parser.add_argument("--every", action="store_true", help="show every size, not only the steps")
    options.add_common(parser)
    apart.add_options(parser, "sweep")


def run(args: argparse.Namespace) -> int:
    """Measure, and print the steps."""
    swept = sizes_between(args.from_size[0], args.to_size[0])
    if len(swept) < 2:
        args.complain("--from and --to leave fewer than two sizes")
    kind = _KINDS[args.kind]
    asked = {way: [Question(kind, size, how=_WAYS[way]) for size in swept] for way in args.ways}
    questions = [question for one in asked.values() for question in one]

    def conclude(answers: Answers) -> Report:
        notes = Notes()
        steps = [step for way, one in asked.items() for step in steps_of(way, one, answers)]
        found = [step for step in steps if step.word]
        parts = []
        if args.every:
            rows = [_row(answers.expect(Shmnd.name, question), notes) for question in questions]
            parts.append(render(("question", "median (least..greatest) [usec]"), rows))
        headings = ("memory", "sizes", "ratio of their times", "")
        parts.append(render(headings, [step.cells() for step in found]))
        parts.append(f"{len(found)} of {len(steps)} ratios are above {FACTOR:g}")
        parts += filter(None, ["\n".join(notes.lines())])
        data = {"command": "sweep", "steps": [dataclasses.asdict(step) for step in found]}
        return Report("\n\n".join(parts), data, any(answer.error for answer in answers))

    return perform(args, questions, [Shmnd(args.namespace)], conclude)


def sizes_between(first: int, last: int) -> list[int]:
    """Return the sizes from one to the other, each about a third larger than the one before."""
    found, size = [], first
    while size <= last:
        found.append(size)
        size = max(size + 1, round(size * FACTOR))
    return found


def steps_of(way: str, questions: Sequence[Question], answers: Answers) -> list[Step]:
    """Compare each size with the one before it, round by round."""
    found = []
    for one, other in itertools.pairwise(questions):
        below, above = answers.get(Shmnd.name, one), answers.get(Shmnd.name, other)
        if below and above and below.spread and above.spread:
            ratio = Spread.of_ratios(above.values, below.values)
            found.append(Step(way, one.size, other.size, ratio))
    return found


def _row(answer: Answer, notes: Notes) -> list[str]:
    if answer.spread is None:
        return [answer.question.label, notes.refer(answer.reason)]
    return [answer.question.label, answer.spread.map(_microseconds).format(number)]


def _microseconds(seconds: float) -> float:
    return seconds * 1e6
