# SPDX-License-Identifier: Apache-2.0
"""How fast is it here? Two processes, started and pinned by this command, and a table."""

import argparse
import functools

from ..command import apart
from ..command.frame import Report, perform
from ..command.options import ENGINES, add_common, add_engine, within
from ..measure.question import Kind, Question
from ..report.table import Notes, in_unit, number, render, unit
from ..report.targets import RATE, SEND, STREAMS, WRITE
from ..subjects.own import Shmnd, ShmndNative
from ..subjects.rounds import Answer, Answers

HELP = "latency and bandwidth of shmnd between two processes of this machine"
EXAMPLE = "shmnd bench core --quick"

_QUESTIONS = (SEND, WRITE, RATE, *STREAMS)
_LOOPS = {Shmnd.name: "Python", ShmndNative.name: "compiled"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        *("-s", "--size"),
        type=within(int, 1, 1 << 30),
        help=f"bytes of the ping-pong, and of a Write (default {SEND.size})",
    )
    add_engine(parser)
    add_common(parser)
    apart.add_options(parser, "core")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    subjects = [subject(args.namespace) for subject in ENGINES[args.engine]]
    questions = [*_QUESTIONS]
    if args.size:
        questions[:2] = [Question(Kind.PINGPONG, args.size), Question(Kind.WRITE, args.size)]
    return perform(args, questions, subjects, _conclude)


def _conclude(answers: Answers) -> Report:
    notes = Notes()
    headings = ("what", "loop", "median", "least..greatest", "")
    rows = [_row(answer, notes) for answer in answers]
    text = "\n".join([render(headings, rows, right="  rr"), *notes.lines()])
    failed = any(answer.error for answer in answers)
    return Report(text, {"command": "core"}, failed)


def _row(answer: Answer, notes: Notes) -> tuple[str, ...]:
    question = answer.question
    start = (question.label, _LOOPS[answer.subject])
    if answer.spread is None:
        return (*start, notes.refer(answer.reason), "", "")
    spread = answer.spread.map(functools.partial(in_unit, question))
    span = f"{number(spread.low)}..{number(spread.high)}"
    return (*start, number(spread.median), span, unit(question))
