# SPDX-License-Identifier: Apache-2.0
"""The gain of a batch: the same bursts of small Sends, published one by one and together."""

import argparse
import functools

from ..command import apart
from ..command.frame import Report, perform
from ..command.options import ENGINES, add_common, add_engine, within
from ..measure.how import How
from ..measure.question import Kind, Question
from ..report.table import Notes, in_unit, number, render, unit
from ..subjects.own import Shmnd, ShmndNative
from ..subjects.rounds import Answer, Answers

HELP = "bursts of small Sends, each with and without a batch"
EXAMPLE = "shmnd bench batch --quick"

_BURSTS = (4, 16, 64)
_LOOPS = {Shmnd.name: "Python", ShmndNative.name: "compiled"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        *("-s", "--size"),
        type=within(int, 0, 1 << 20),
        default=8,
        help="bytes of a message (default 8; from 1 KiB on a batch holds no message back)",
    )
    add_engine(parser)
    add_common(parser)
    apart.add_options(parser, "batch")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    subjects = [subject(args.namespace) for subject in ENGINES[args.engine]]
    questions = [
        Question(Kind.STREAM, args.size, how=How(burst=burst, batch=batch))
        for burst in _BURSTS
        for batch in (False, True)
    ]
    return perform(args, questions, subjects, _conclude)


def _conclude(answers: Answers) -> Report:
    notes = Notes()
    headings = ("what", "loop", "median", "least..greatest", "", "of one by one")
    singly = {
        (answer.subject, answer.question.how.burst): answer
        for answer in answers
        if not answer.question.how.batch
    }
    rows = [
        _row(answer, singly[answer.subject, answer.question.how.burst], notes) for answer in answers
    ]
    text = "\n".join([render(headings, rows, right="  rr r"), *notes.lines()])
    return Report(text, {"command": "batch"}, any(answer.error for answer in answers))


def _row(answer: Answer, singly: Answer, notes: Notes) -> tuple[str, ...]:
    question = answer.question
    start = (question.label, _LOOPS[answer.subject])
    if answer.spread is None:
        return (*start, notes.refer(answer.reason), "", "", "")
    spread = answer.spread.map(functools.partial(in_unit, question))
    span = f"{number(spread.low)}..{number(spread.high)}"
    gain = ""
    if question.how.batch and singly.spread is not None:
        gain = f"{singly.spread.median / answer.spread.median:.2f} x"
    return (*start, number(spread.median), span, unit(question), gain)
