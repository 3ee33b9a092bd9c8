# SPDX-License-Identifier: Apache-2.0
"""The performance targets of shmnd, and the verdict of a run on each of them.

Where possible a target is a ratio to a figure measured in the same rounds, so that it has the same
meaning on any machine. A row whose rounds differ too much gets no verdict: "too noisy".
"""

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, Final

from ..measure.how import How, Memory, Wait
from ..measure.question import Kind, Question
from ..measure.spread import Spread
from ..subjects.rounds import Answer, Answers
from .table import Notes, in_unit, number, unit

SEND: Final = Question(Kind.PINGPONG, 40)
WRITE: Final = Question(Kind.WRITE, 40)
RATE: Final = Question(Kind.STREAM, 8)
ASLEEP: Final = Question(Kind.PINGPONG, 40, how=How(wait=Wait.EVENT))
"""Between two processes that sleep at once while no message is there."""
AWAITED: Final = dataclasses.replace(ASLEEP, how=How(wait=Wait.ASYNCIO))
STREAMS: Final = tuple(Question(Kind.STREAM, size) for size in (64 << 10, 1 << 20, 4 << 20))
PRIVATE: Final = tuple(
    dataclasses.replace(question, how=How(memory=Memory.PRIVATE)) for question in STREAMS
)
"""The same streams between arrays in private memory."""
CORE: Final = (SEND, WRITE, ASLEEP, AWAITED, RATE, *STREAMS, *PRIVATE)
"""The questions about one connection."""
OPEN_MPI: Final = "mpi4py Open MPI"
MPI: Final = "mpi4py shmnd"
MPI_PINGS: Final = tuple(
    Question(Kind.PINGPONG, size) for size in (8, 4 << 10, 64 << 10, 1 << 20, 4 << 20)
)
"""Blocking Send and Recv between two ranks, with arrays in private memory."""
MPI_ARRAYS: Final = tuple(
    dataclasses.replace(question, how=How(memory=Memory.NUMPY)) for question in MPI_PINGS[2:]
)
"""The same with arrays of numpy, which lie in memory that all ranks of shmnd map."""
MPI_STREAMS: Final = tuple(Question(Kind.STREAM, size) for size in (8, 4 << 10, 1 << 20))
MPI_OBJECTS: Final = tuple(Question(Kind.PICKLED, size) for size in (0, 100_000))
MPI_LARGE_OBJECT: Final = Question(Kind.PICKLED, 1 << 20)
MPI_WINDOW: Final = Question(Kind.WINDOW, 8)
MPI_BETWEEN: Final = (
    *(Question(Kind.PINGPONG, size) for size in (512, 8 << 10)),
    Question(Kind.PINGPONG, 8 << 10, how=How(memory=Memory.NUMPY)),
    *(Question(Kind.STREAM, size) for size in (512, 64 << 10)),
)
"""Further sizes for the plot, without targets."""
MPI_RANKS: Final = (2, 4)
_NO_BOUNDS: Final = (None, None)
MPI_COLLECTIVES: Final = {
    Question(kind, size, how=How(processes=ranks)): bounds[place]
    for kind, size, bounds in (
        (Kind.BARRIER, 0, (0.4, 0.6)),
        (Kind.BCAST, 8, (0.25, None)),
        *((Kind.BCAST, size, _NO_BOUNDS) for size in (1 << 10, 64 << 10, 1 << 20)),
        (Kind.ALLREDUCE, 8, (0.25, 0.45)),
        *((Kind.ALLREDUCE, size, _NO_BOUNDS) for size in (1 << 10, 64 << 10)),
        (Kind.ALLREDUCE, 1 << 20, (0.4, 0.9)),
        (Kind.ALLGATHER, 1 << 10, _NO_BOUNDS),
        *((Kind.ALLTOALL, size, _NO_BOUNDS) for size in (8, 1 << 10, 64 << 10, 1 << 20)),
    )
    for place, ranks in enumerate(MPI_RANKS)
}
"""Collectives of two and of four ranks, with the bound of the ratio where there is one."""
IDLE: Final = 1000
IDLE_BYTES: Final = 64 << 10
MEETING_OF: Final = 32
SMALL_DEPTH: Final = 4
SMALL_BYTES: Final = 16 << 10
STANDING: Final = 256
CONNECT_MANY: Final = Question(Kind.CONNECT_MANY, 0, idle=STANDING)
CONNECT_SMALL: Final = dataclasses.replace(
    CONNECT_MANY, how=How(sends=SMALL_DEPTH, receives=SMALL_DEPTH)
)
"""The same with small queues, for a mesh of many processes."""

_NOT_ASKED: Final = "not part of this run"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A bound on a figure, or on its ratio to another figure of the same run."""

    subject: str
    question: Question
    bound: float
    against: str | None = None
    against_question: Question | None = None
    """The question of the other figure, if it is a different one."""
    floor: str | None = None
    """The subject that answers the question without a library: what the interpreter alone takes."""

    @property
    def at_least(self) -> bool:
        """Whether the figure is a rate, which should be high; times should be low."""
        return self.question.is_stream

    @property
    def label(self) -> str:
        """The name in tables."""
        return f"{self.question.label}, {self.subject}"

    @property
    def bound_label(self) -> str:
        """The bound as tables show it."""
        suffix = f" {unit(self.question)}" if self.against is None else ""
        return f"{'≥' if self.at_least else '≤'} {self.bound:,g}{suffix}"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run for one target."""

    label: str
    bound: str
    ours: str = ""
    against: str = ""
    theirs: str = ""
    value: Spread | None = None
    floor: str = ""
    """The subject without a library, and its ratio to the other figure."""
    met: bool | None = None
    """None if it could not be measured, or if the rounds were too noisy."""
    sure: bool = False
    """The interval of the median is on one side of the bound."""
    noisy: bool = False
    """The interval of the median is too wide for a verdict."""
    remark: str = ""

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        if self.noisy:
            return "too noisy"
        if self.met is None:
            return "unknown"
        return ("met" if self.met else "missed") + ("" if self.sure else " (unsure)")

    def cells(self, notes: Notes) -> list[str]:
        """Return a row of the table of verdicts; the notes have the reason of a missing value."""
        value = self.value.format(number) if self.value else notes.refer(self.remark)
        return [
            self.label,
            self.ours,
            self.against,
            self.theirs,
            value,
            self.floor,
            self.bound,
            self.word,
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the fields for reports."""
        return dataclasses.asdict(self)


HEADINGS: Final = ("target", "figure", "against", "figure", "ratio", "floor", "bound", "verdict")
_FLOORS: Final = (
    "A floor is the same loop without a library: only what the interpreter, its event loop, or"
    " numpy takes to store a message and to notice one. Its ratio is to the same figure. Where the"
    " floor misses a bound, no library that Python calls can meet it."
)


def core_targets(idle: int = IDLE) -> list[Target]:
    """Return the targets of the core: its speed in Python, in C, and with many connections."""
    targets = [
        Target("shmnd", SEND, 0.4, OPEN_MPI),
        Target("shmnd", SEND, 0.9, "fi_pingpong"),
        Target("shmnd native", SEND, 0.4, "fi_pingpong"),
        Target("shmnd", WRITE, 1.0, "shmnd", SEND),
        Target("shmnd", WRITE, 1.2, "ucx_perftest", floor="bare Python"),
        Target("shmnd", ASLEEP, 1.3, "Pipe"),
        Target("shmnd", AWAITED, 1.6, "Pipe", ASLEEP, floor="bare asyncio"),
        Target("shmnd uvloop", AWAITED, 1.6, "Pipe", ASLEEP),
        Target("shmnd", RATE, 2.0),
        Target("shmnd native", RATE, 10.0),
    ]
    for question, bound in zip(STREAMS, (0.9, 1.3, 1.3), strict=True):
        targets.append(Target("shmnd", question, bound, "memcpy"))
        targets.append(Target("shmnd", question, 2.0, OPEN_MPI))
    for question, plain in zip(PRIVATE, STREAMS, strict=True):
        targets.append(Target("shmnd", question, 1.5, OPEN_MPI, plain))
        # Two cores copy, each of them nearly at the speed of one alone.
        targets.append(Target("shmnd", question, 1.8, "process_vm_readv", plain))
    if idle:
        crowd = dataclasses.replace(SEND, idle=idle)
        targets.append(Target("shmnd crowd", crowd, 1.3, "shmnd", SEND))
    return targets


def meeting(processes: int) -> Question:
    """Return the question of connections between every two of so many processes."""
    return Question(Kind.MEETING, 0, how=How(processes=processes))


def connection_targets(processes: int = MEETING_OF) -> list[Target]:
    """Return the targets of making many connections, in µs: each of them, and those of all pairs.

    The second one is for the usual number of processes only.
    """
    targets = [Target("shmnd", CONNECT_MANY, 300)]
    if processes == MEETING_OF:
        targets.append(Target(f"shmnd {processes} processes", meeting(processes), 500_000))
    return targets


def mpi_name(name: str, ranks: int) -> str:
    """Return what tables call a library of MPI with so many ranks."""
    return name if ranks == 2 else f"{name}, {ranks} ranks"


def mpi_targets() -> list[Target]:
    """Return the targets of MPI programs: the ratio to the same program on Open MPI."""
    bounds = dict(zip(MPI_PINGS, (0.3, 0.3, 0.8, 0.6, 0.8), strict=True))
    bounds |= dict(zip(MPI_ARRAYS, (0.2, 0.2, 0.35), strict=True))
    bounds |= {MPI_WINDOW: 0.3, **dict(zip(MPI_OBJECTS, (0.65, 0.8), strict=True))}
    messages = [Target(MPI, question, bound, OPEN_MPI) for question, bound in bounds.items()]
    collectives = [
        Target(mpi_name(MPI, ranks), question, bound, mpi_name(OPEN_MPI, ranks))
        for question, bound in MPI_COLLECTIVES.items()
        if bound is not None and (ranks := question.how.processes)
    ]
    return messages + collectives


def judge(target: Target, answers: Answers) -> Verdict:
    """Return the verdict on a target by the measured figures."""
    base = Verdict(target.label, target.bound_label, against=target.against or "")
    ours = answers.get(target.subject, target.question)
    if ours is None or ours.spread is None:
        return dataclasses.replace(base, remark=ours.reason if ours else _NOT_ASKED)
    base = dataclasses.replace(base, ours=_figure(target.question, ours.spread))
    if target.against is None:
        value = Spread.of_median([in_unit(target.question, each) for each in ours.values])
        return weigh(base, value, target.bound, at_least=target.at_least, noisy=value.noisy)
    other = target.against_question or target.question
    theirs = answers.get(target.against, other)
    if theirs is None or theirs.spread is None:
        return dataclasses.replace(base, remark=theirs.reason if theirs else _NOT_ASKED)
    base = dataclasses.replace(base, theirs=_figure(other, theirs.spread))
    value = _ratio(target, ours, theirs)
    floor = answers.get(target.floor, target.question) if target.floor else None
    if floor is not None and floor.spread is not None:
        least = _ratio(target, floor, theirs)
        base = dataclasses.replace(base, floor=f"{target.floor}: {number(least.median)}")
    return weigh(base, value, target.bound, at_least=target.at_least, noisy=value.noisy)


def _ratio(target: Target, ours: Answer, theirs: Answer) -> Spread:
    """Return the ratio of two figures. Times are divided as they are; rates are one over times."""
    pair = (ours.values, theirs.values)
    return Spread.of_ratios(*(reversed(pair) if target.at_least else pair))


def judge_footprint(
    bytes_per_idle: float | None, bound: int = IDLE_BYTES, what: str = ""
) -> Verdict:
    """Return the verdict on the memory of an idle connection."""
    base = Verdict(f"shared memory per idle connection{what}", f"≤ {bound >> 10} KiB")
    if bytes_per_idle is None:
        return dataclasses.replace(base, remark=_NOT_ASKED)
    kib = Spread.of([bytes_per_idle / 1024])
    base = dataclasses.replace(base, ours=f"{number(kib.median)} KiB")
    return weigh(base, kib, bound / 1024, at_least=False, noisy=False)


def about_floors(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the explanation of the column of floors, if it has any."""
    return [_FLOORS] if any(verdict.floor for verdict in verdicts) else []


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the numbers of the verdicts in one line."""
    met = sum(verdict.met is True for verdict in verdicts)
    missed = sum(verdict.met is False for verdict in verdicts)
    noisy = sum(verdict.noisy for verdict in verdicts)
    counts = {"met": met, "missed": missed, "too noisy": noisy}
    counts["unknown"] = len(verdicts) - met - missed - noisy
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def weigh(base: Verdict, value: Spread, bound: float, *, at_least: bool, noisy: bool) -> Verdict:
    """Return the verdict on a value by its bound; none if the rounds were noisy."""
    if noisy:
        return dataclasses.replace(base, value=value, noisy=True)
    holds = operator.ge if at_least else operator.le
    met = holds(value.median, bound)
    sure = met == holds(value.low, bound) == holds(value.high, bound)
    return dataclasses.replace(base, value=value, met=met, sure=sure)


def _figure(question: Question, spread: Spread) -> str:
    return f"{number(in_unit(question, spread.median))} {unit(question)}"
