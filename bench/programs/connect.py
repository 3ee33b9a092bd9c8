# SPDX-License-Identifier: Apache-2.0
"""How long does a connection take to set up, and how many can there be in a second?"""

import argparse

from ..command import apart, options
from ..command.frame import Report, perform
from ..measure.question import Kind, Question
from ..report.figures import LATENCY_HEADINGS, latency_cells, table
from ..report.table import number
from ..subjects.connecting import Connecting
from ..subjects.rounds import Answer, Answers, Record

HELP = "connections per second and latency of their set-up (as ndconn)"
EXAMPLE = "shmnd bench connect --quick"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_common(parser)
    apart.add_options(parser, "connect")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    subject = Connecting(args.namespace)
    question = Question(Kind.CONNECT, 0)
    return perform(args, [question], [subject], _conclude, record=Record.ALWAYS)


def _conclude(answers: Answers) -> Report:
    lead = [("connections/s", _rate)]
    text = table(answers, LATENCY_HEADINGS[1:], lambda *row: latency_cells(*row)[1:], lead)
    text += (
        "\ntimes are from Connect to the end of CompleteConnect; the rate is that of whole lives: "
        "made, connected, disconnected, closed"
    )
    return Report(text, {"command": "connect"}, any(answer.error for answer in answers))


def _rate(answer: Answer) -> str:
    return number(1 / answer.spread.median) if answer.spread else "-"
