# SPDX-License-Identifier: Apache-2.0
"""What do many connections cost, and many processes?"""

import argparse
from collections.abc import Callable, Sequence

from ..command import apart, options
from ..command.frame import Report, perform
from ..measure.environment import shared_memory_used
from ..measure.how import How
from ..measure.question import Kind, Question
from ..report.table import Notes, number, render
from ..subjects.mesh import Mesh
from ..subjects.own import Shmnd
from ..subjects.rounds import Answer, Answers
from ..subjects.subject import Subject

HELP = "latency, rate and memory over 1 to 1,000 connections; all to all among processes"
EXAMPLE = "shmnd bench scale --quick"

_SIZE = 40
_PROCESSES = (2, 4, 8, 16)
_HEADINGS = (
    "connections",
    "one way among the others [usec]",
    "over all [Mpps]",
    "shared memory each [KiB]",
)
_MESH_HEADINGS = ("processes", "all to all [usec]", "messages/s")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--connections",
        type=options.numbers(1, 4000),
        default=[1, 10, 100, 1000],
        metavar="N,…",
        help="numbers of connections (default 1,10,100,1000)",
    )
    parser.add_argument(
        "--processes",
        type=options.numbers(2, 64),
        metavar="N,…",
        help="numbers of processes, each connected to every other (default 2,4,8,16; not with "
        "--client)",
    )
    options.add_common(parser)
    apart.add_options(parser, "scale")


class _Scale(Shmnd):
    """One pair of processes for all numbers of connections."""

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__(namespace)
        self.bytes_each: dict[int, float] = {}
        """Shared memory that a connection took, by their number."""

    def answers(self, question: Question) -> bool:
        """Return True for the traffic next to the idle connections: ping-pong and streams."""
        return question.kind in (Kind.PINGPONG, Kind.STREAM)

    def connect(self, question: Question) -> None:
        """Connect, and see how much shared memory that took."""
        before = shared_memory_used()
        super().connect(question)
        if question.kind is Kind.PINGPONG:
            number = question.idle + 1
            self.bytes_each.setdefault(number, (shared_memory_used() - before) / number)


def _quiet(connections: int) -> Question:
    return Question(Kind.PINGPONG, _SIZE, idle=connections - 1)


def _busy(connections: int) -> Question:
    return Question(Kind.STREAM, _SIZE, how=How(pairs=connections, sends=16, receives=32))


def _mesh(processes: int) -> Question:
    return Question(Kind.MESH, _SIZE, how=How(processes=processes))


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    if args.client is not None and args.processes:
        args.complain("--client is for the connections; --processes starts all of its own")
    crowds = [] if args.client is not None else args.processes or _PROCESSES
    pair = _Scale(args.namespace)
    subjects: list[Subject] = [pair, *(Mesh(n, args.namespace) for n in crowds)]
    questions = [
        *map(_quiet, args.connections),
        *map(_busy, args.connections),
        *map(_mesh, crowds),
    ]

    def conclude(answers: Answers) -> Report:
        notes = Notes()
        rows = [_row(answers, pair, connections, notes) for connections in args.connections]
        parts = [render(_HEADINGS, rows, right="rrrr")]
        if crowds:
            mesh = [_mesh_row(answers, processes, notes) for processes in crowds]
            parts += ["", render(_MESH_HEADINGS, mesh, right="rrr")]
        text = "\n".join([*parts, *notes.lines()])
        data = {"command": "scale", "bytes_per_connection": pair.bytes_each}
        return Report(text, data, any(answer.error for answer in answers))

    return perform(args, questions, subjects, conclude)


def _row(answers: Answers, pair: _Scale, connections: int, notes: Notes) -> list[str]:
    quiet = answers.expect(pair.name, _quiet(connections))
    busy = answers.expect(pair.name, _busy(connections))
    memory = pair.bytes_each.get(connections)
    return [
        f"{connections:,}",
        _formatted(quiet, notes, lambda seconds: seconds * 1e6),
        _formatted(busy, notes, lambda seconds: 1e-6 / seconds),
        number(memory / 1024) if memory is not None else "-",
    ]


def _mesh_row(answers: Answers, processes: int, notes: Notes) -> list[str]:
    found: Sequence[Answer] = [a for a in answers if a.question == _mesh(processes)]
    if not found:
        return [str(processes), "-", "-"]
    messages = processes * (processes - 1)
    return [
        str(processes),
        _formatted(found[0], notes, lambda seconds: seconds * 1e6),
        _formatted(found[0], notes, lambda seconds: messages / seconds),
    ]


def _formatted(answer: Answer, notes: Notes, unit: Callable[[float], float]) -> str:
    if answer.spread is None:
        return notes.refer(answer.reason)
    return answer.spread.map(unit).format(number)
