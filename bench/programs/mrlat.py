# SPDX-License-Identifier: Apache-2.0
"""How long does registering memory take?"""

import argparse

from ..command import apart, options
from ..command.frame import Report, perform
from ..measure.question import Kind, Question
from ..report.figures import LATENCY_HEADINGS, latency_cells, table
from ..subjects.registration import LOCAL, Registrar
from ..subjects.rounds import Answers, Record

HELP = "latency of Register and Deregister (as ndmrlat)"
EXAMPLE = "shmnd bench mrlat -s 4K,1M"

_KINDS = (Kind.REGISTER, Kind.DEREGISTER)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_sizes(parser, 65536)
    options.add_common(parser)
    apart.refuse_options(parser, LOCAL)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    how = options.how_of(args)
    questions = [Question(kind, size, how=how) for kind in _KINDS for size in args.sizes]
    return perform(args, questions, [Registrar(args.namespace)], _conclude, record=Record.ALWAYS)


def _conclude(answers: Answers) -> Report:
    lead = [("what", lambda answer: answer.question.kind.value)]
    text = table(answers, LATENCY_HEADINGS, latency_cells, lead)
    return Report(text, {"command": "mrlat"}, any(answer.error for answer in answers))
