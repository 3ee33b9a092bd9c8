# SPDX-License-Identifier: Apache-2.0
"""Time and memory of connections that are made by the hundred."""

import argparse
from collections.abc import Mapping

from ..command import apart, options
from ..command.frame import Report, perform
from ..command.options import within
from ..measure.question import Question
from ..report.comparison import figures
from ..report.table import Notes, render
from ..report.targets import (
    CONNECT_MANY,
    CONNECT_SMALL,
    HEADINGS,
    MEETING_OF,
    SMALL_BYTES,
    SMALL_DEPTH,
    Verdict,
    connection_targets,
    judge,
    judge_footprint,
    meeting,
    summary,
)
from ..subjects.many import Many, Meeting
from ..subjects.rounds import Answers
from ..subjects.subject import Subject

HELP = "many connections at once, all pairs of many processes, and the memory of idle ones"
EXAMPLE = "shmnd bench connections --processes 8 --quick"

_ALL_HERE = "it starts all processes itself"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--processes",
        type=within(int, 0, 64),
        default=MEETING_OF,
        metavar="N",
        help=f"processes that all connect with each other (default {MEETING_OF}; 0: none)",
    )
    options.add_common(parser)
    apart.refuse_options(parser, _ALL_HERE)


def run(args: argparse.Namespace) -> int:
    """Measure, and print the verdicts and every figure."""
    many = Many(args.namespace)
    questions, subjects = asked(many, args.processes, args.namespace)

    def conclude(answers: Answers) -> Report:
        notes = Notes()
        judged = verdicts(answers, bytes_each(many), args.processes)
        parts = [
            render(HEADINGS, [verdict.cells(notes) for verdict in judged], right=" r r"),
            summary(judged),
            figures(answers, questions, notes),
            *filter(None, ["\n".join(notes.lines())]),
        ]
        data = {
            "command": "connections",
            "verdicts": [verdict.as_json() for verdict in judged],
            "bytes_each": bytes_each(many),
        }
        return Report("\n\n".join(parts), data, any(answer.error for answer in answers))

    return perform(args, questions, subjects, conclude)


def asked(
    many: Many, processes: int, namespace: str | None
) -> tuple[list[Question], list[Subject]]:
    """Return the questions and their subjects; 0 processes: no meeting."""
    questions = [CONNECT_MANY, CONNECT_SMALL]
    subjects: list[Subject] = [many]
    if processes > 1:
        questions.append(meeting(processes))
        subjects.append(Meeting(processes, namespace))
    return questions, subjects


def bytes_each(many: Many) -> dict[str, float]:
    """Return the shared memory of an idle connection, with usual and with small queues."""
    named = {"usual": CONNECT_MANY, "small": CONNECT_SMALL}
    found = {name: many.bytes_each.get(question) for name, question in named.items()}
    return {name: nbytes for name, nbytes in found.items() if nbytes is not None}


def verdicts(
    answers: Answers, bytes_each: Mapping[str, float], processes: int = MEETING_OF
) -> list[Verdict]:
    """Return the verdicts on the targets of connections."""
    judged = [judge(target, answers) for target in connection_targets(processes)]
    judged.append(judge_footprint(bytes_each.get("usual"), what=", usual queues"))
    small = f", queues of {SMALL_DEPTH}"
    return [*judged, judge_footprint(bytes_each.get("small"), SMALL_BYTES, small)]
