# SPDX-License-Identifier: Apache-2.0
"""The time until a sleeping process has a message. Both ends sleep in the same way.

There is a pause between two rounds, so that the waiter is asleep when the message is sent. `task`
is asyncio with the polls that come before a sleep: with `--rate 1e5` the answer arrives meanwhile.
"""

import argparse
import dataclasses

from ..command import apart, options
from ..command.frame import Report, perform
from ..measure.how import Wait
from ..measure.question import Kind, Question
from ..report.figures import LATENCY_HEADINGS, latency_cells, table
from ..subjects.own import Shmnd
from ..subjects.rounds import Answer, Answers, Record

HELP = "latency of waking up: by a wait that sleeps at once, by Notify, in asyncio, and with polls"
EXAMPLE = "shmnd bench notify --quick"

RATE = 1000.0
_WAYS = {
    "wait": Wait.EVENT,
    "notify": Wait.NOTIFY,
    "asyncio": Wait.ASYNCIO,
    "task": Wait.TASK,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--ways",
        type=options.words(_WAYS),
        default=list(_WAYS),
        metavar="NAME,…",
        help=f"ways to sleep (default {','.join(_WAYS)})",
    )
    parser.add_argument(
        "--rate",
        type=options.within(float, 1, 1e5),
        default=RATE,
        metavar="R",
        help=f"rounds per second (default {RATE:g})",
    )
    options.add_sizes(parser, 40)
    options.add_common(parser)
    apart.add_options(parser, "notify")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    how = options.how_of(args)
    questions = [
        Question(Kind.PINGPONG, size, how=dataclasses.replace(how, wait=_WAYS[way]))
        for way in args.ways
        for size in args.sizes
    ]
    return perform(args, questions, [Shmnd(args.namespace)], _conclude, record=Record.ALWAYS)


def _conclude(answers: Answers) -> Report:
    names = {wait: way for way, wait in _WAYS.items()}

    def way(answer: Answer) -> str:
        return names[answer.question.how.wait]

    text = table(answers, LATENCY_HEADINGS, latency_cells, [("way", way)])
    text += "\ntimes are there and back: two processes wake up, one after the other"
    return Report(text, {"command": "notify"}, any(answer.error for answer in answers))
