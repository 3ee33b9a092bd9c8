# SPDX-License-Identifier: Apache-2.0
"""Topics and queues of `shmnd.ipc`, side by side with the libraries for the same purpose."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ..command import apart, options
from ..command.frame import Report, perform
from ..ipc.bare import BareCalls
from ..ipc.iceoryx import IceoryxTopics
from ..ipc.others import Fill, Line, ZeroMqTopics
from ..ipc.own import Topics
from ..ipc.queues import MultiprocessingQueues, Queues
from ..ipc.targets import IDLE, WORDS, questions, verdicts
from ..report import comparison
from ..report.comparison import versions
from ..report.table import Notes, render
from ..report.targets import HEADINGS, about_floors, summary
from ..subjects.rounds import Answers, Record
from ..subjects.subject import Subject

HELP = "topics and queues, with verdicts against iceoryx2, multiprocessing.Queue and pyzmq"
EXAMPLE = "shmnd bench ipc --what values,arrays --quick"

_PEERS: Final[Mapping[str, Callable[[], Subject]]] = {
    "cacheline": Line,
    "bare_calls": BareCalls,
    "fill": Fill,
    "iceoryx2": IceoryxTopics,
    "zmq": ZeroMqTopics,
    "multiprocessing": MultiprocessingQueues,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--what",
        type=options.words(WORDS),
        default=list(WORDS),
        metavar="NAME,…",
        help=f"what to measure (default {','.join(WORDS)})",
    )
    parser.add_argument(
        "--peers",
        type=options.words(_PEERS),
        default=list(_PEERS),
        metavar="NAME,…",
        help=f"what to compare with (default {','.join(_PEERS)})",
    )
    parser.add_argument(
        "--idle",
        type=options.within(int, 0, 4000),
        default=IDLE,
        metavar="N",
        help=f"idle subscribers of one topic (default {IDLE}; 0: none)",
    )
    options.add_common(parser)
    apart.add_options(parser, "ipc")


def subjects_of(namespace: str | None, peers: Iterable[str] = tuple(_PEERS)) -> list[Subject]:
    """Return shmnd and the peers."""
    return [Topics(namespace), Queues(), *(_PEERS[name]() for name in peers)]


def run(args: argparse.Namespace) -> int:
    """Measure, print the verdicts, and then every figure."""
    asked = questions(args.what, args.idle)

    def conclude(answers: Answers) -> Report:
        notes = Notes()
        judged = verdicts(answers, asked)
        figures = comparison.rows(answers, asked, notes)
        parts = [
            render(HEADINGS, [verdict.cells(notes) for verdict in judged], right=" r r"),
            summary(judged),
            *about_floors(judged),
            render(comparison.HEADINGS[:4], [row[:4] for row in figures]),
            *filter(None, ["\n".join(notes.lines())]),
            versions(answers),
        ]
        data = {"command": "ipc", "verdicts": [verdict.as_json() for verdict in judged]}
        return Report("\n\n".join(parts), data)

    record = Record.APART if args.plot or args.hdr or args.json or args.csv else Record.NEVER
    return perform(args, asked, subjects_of(args.namespace, args.peers), conclude, record=record)
