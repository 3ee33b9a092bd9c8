# SPDX-License-Identifier: Apache-2.0
"""What shmnd wants to reach, and whether a run reached it.

Targets are ratios to something measured in the same rounds wherever they can be: they mean the
same on any machine.
"""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any, Final

from ..measure.how import How, Memory, Wait
from ..measure.question import Kind, Question
from ..measure.spread import Spread
from ..subjects.rounds import Answers
from .table import Notes, in_unit, number, unit

SEND: Final = Question(Kind.PINGPONG, 40)
WRITE: Final = Question(Kind.WRITE, 40)
RATE: Final = Question(Kind.STREAM, 8)
ASLEEP: Final = Question(Kind.PINGPONG, 40, how=How(wait=Wait.EVENT))
"""Between two processes that sleep at once when there is nothing yet."""
AWAITED: Final = dataclasses.replace(ASLEEP, how=How(wait=Wait.ASYNCIO))
STREAMS: Final = tuple(Question(Kind.STREAM, size) for size in (64 << 10, 1 << 20, 4 << 20))
PRIVATE: Final = tuple(
    dataclasses.replace(question, how=How(memory=Memory.PRIVATE)) for question in STREAMS
)
"""The same streams between ordinary arrays."""
OPEN_MPI: Final = "mpi4py Open MPI"
IDLE: Final = 1000
IDLE_BYTES: Final = 64 << 10

_NOT_ASKED: Final = "not part of this run"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A bound on a figure, or on its ratio to another figure of the same run."""

    subject: str
    question: Question
    bound: float
    against: str | None = None
    against_question: Question | None = None
    """When the other figure answers another question."""

    @property
    def at_least(self) -> bool:
        """Rates are to be high and times low."""
        return self.question.is_stream

    @property
    def label(self) -> str:
        """What a table calls it."""
        return f"{self.question.label}, {self.subject}"

    @property
    def bound_label(self) -> str:
        """The bound as a table shows it."""
        what = f" {unit(self.question)}" if self.against is None else ""
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{what}"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says to a target."""

    label: str
    bound: str
    ours: str = ""
    against: str = ""
    theirs: str = ""
    value: Spread | None = None
    met: bool | None = None
    """None when it could not be measured."""
    sure: bool = False
    """No round was on the other side of the bound."""
    remark: str = ""

    @property
    def word(self) -> str:
        """The verdict in one word."""
        if self.met is None:
            return "unknown"
        return ("met" if self.met else "missed") + ("" if self.sure else " (unsure)")

    def cells(self, notes: Notes) -> list[str]:
        """Return a row for the table of verdicts; why there is no value goes to the notes."""
        value = self.value.format(number) if self.value else notes.refer(self.remark)
        return [self.label, self.ours, self.against, self.theirs, value, self.bound, self.word]

    def as_json(self) -> dict[str, Any]:
        """Return the form for reports."""
        return dataclasses.asdict(self)


HEADINGS: Final = ("target", "figure", "against", "figure", "ratio", "bound", "verdict")


def core_targets(idle: int = IDLE) -> list[Target]:
    """Return the targets of the core: its speed in Python, in C, and with many connections."""
    targets = [
        Target("shmnd", SEND, 0.5, OPEN_MPI),
        Target("shmnd", SEND, 1.0, "fi_pingpong"),
        Target("shmnd native", SEND, 0.4, "fi_pingpong"),
        Target("shmnd", WRITE, 1.0, "shmnd", SEND),
        Target("shmnd", ASLEEP, 1.3, "Pipe"),
        Target("shmnd", AWAITED, 1.6, "Pipe", ASLEEP),
        Target("shmnd", RATE, 2.0),
        Target("shmnd native", RATE, 10.0),
    ]
    for question, bound in zip(STREAMS, (0.9, 1.3, 1.3), strict=True):
        targets.append(Target("shmnd", question, bound, "memcpy"))
        targets.append(Target("shmnd", question, 2.0, OPEN_MPI))
    for question, plain in zip(PRIVATE, STREAMS, strict=True):
        targets.append(Target("shmnd", question, 1.5, OPEN_MPI, plain))
        # Two cores copy, each nearly as fast as one alone.
        targets.append(Target("shmnd", question, 1.8, "process_vm_readv", plain))
    if idle:
        crowd = dataclasses.replace(SEND, idle=idle)
        targets.append(Target("shmnd crowd", crowd, 1.3, "shmnd", SEND))
    return targets


def judge(target: Target, answers: Answers) -> Verdict:
    """Hold a target against what was measured."""
    base = Verdict(target.label, target.bound_label, against=target.against or "")
    ours = answers.get(target.subject, target.question)
    if ours is None or ours.spread is None:
        return dataclasses.replace(base, remark=ours.reason if ours else _NOT_ASKED)
    base = dataclasses.replace(base, ours=_figure(target.question, ours.spread))
    if target.against is None:
        value = ours.spread.map(functools.partial(in_unit, target.question))
        return _weigh(base, value, target.bound, at_least=target.at_least)
    other = target.against_question or target.question
    theirs = answers.get(target.against, other)
    if theirs is None or theirs.spread is None:
        return dataclasses.replace(base, remark=theirs.reason if theirs else _NOT_ASKED)
    base = dataclasses.replace(base, theirs=_figure(other, theirs.spread))
    # Times are divided as they are; rates are one over times.
    pair = (ours.values, theirs.values)
    value = Spread.of_ratios(*(reversed(pair) if target.at_least else pair))
    return _weigh(base, value, target.bound, at_least=target.at_least)


def judge_footprint(bytes_per_idle: float | None) -> Verdict:
    """Hold the memory of an idle connection against its bound."""
    base = Verdict("shared memory per idle connection", f"≤ {IDLE_BYTES >> 10} KiB")
    if bytes_per_idle is None:
        return dataclasses.replace(base, remark=_NOT_ASKED)
    kib = Spread.of([bytes_per_idle / 1024])
    base = dataclasses.replace(base, ours=f"{number(kib.median)} KiB")
    return _weigh(base, kib, IDLE_BYTES / 1024, at_least=False)


def summary(verdicts: Sequence[Verdict]) -> str:
    """Count the verdicts in one line."""
    met = sum(verdict.met is True for verdict in verdicts)
    missed = sum(verdict.met is False for verdict in verdicts)
    return f"{met} met, {missed} missed, {len(verdicts) - met - missed} unknown"


def _weigh(base: Verdict, value: Spread, bound: float, *, at_least: bool) -> Verdict:
    holds = operator.ge if at_least else operator.le
    met = holds(value.median, bound)
    sure = met == holds(value.low, bound) == holds(value.high, bound)
    return dataclasses.replace(base, value=value, met=met, sure=sure)


def _figure(question: Question, spread: Spread) -> str:
    return f"{number(in_unit(question, spread.median))} {unit(question)}"
