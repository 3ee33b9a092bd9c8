# SPDX-License-Identifier: Apache-2.0
"""How often can memory be registered and deregistered, by one thread and by several?"""

import argparse
import dataclasses

from ..command import apart, options
from ..command.frame import Report, perform
from ..measure.question import Kind, Question
from ..report.figures import table
from ..report.table import Notes, number
from ..subjects.registration import LOCAL, Registrar
from ..subjects.rounds import Answer, Answers

HELP = "registrations per second over threads (as ndmrrate)"
EXAMPLE = "shmnd bench mrrate --quick"

_HEADINGS = ("#bytes", "threads", "#iterations", "registrations/s", "least..greatest")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_sizes(parser, 65536)
    parser.add_argument(
        "--threads",
        type=options.numbers(1, 64),
        default=[1, 2, 4],
        metavar="N,…",
        help="numbers of threads (default 1,2,4)",
    )
    options.add_common(parser)
    apart.refuse_options(parser, LOCAL)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    how = options.how_of(args)
    questions = [
        Question(Kind.REGISTRATION, size, how=dataclasses.replace(how, threads=threads))
        for size in args.sizes
        for threads in args.threads
    ]
    return perform(args, questions, [Registrar(args.namespace)], _conclude)


def _conclude(answers: Answers) -> Report:
    text = table(answers, _HEADINGS, _cells)
    return Report(text, {"command": "mrrate"}, any(answer.error for answer in answers))


def _cells(answer: Answer, notes: Notes) -> list[str]:
    start = [str(answer.question.size), str(answer.question.how.threads)]
    if answer.spread is None:
        return [*start, "0", notes.refer(answer.reason), ""]
    rate = answer.spread.map(lambda seconds: 1 / seconds)
    done = str(answer.count * len(answer.values))
    return [*start, done, number(rate.median), f"{number(rate.low)}..{number(rate.high)}"]
