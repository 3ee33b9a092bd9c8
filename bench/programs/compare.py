# SPDX-License-Identifier: Apache-2.0
"""Is it faster than the others, and by how much? Side by side, in the rounds of one run."""

import argparse
import dataclasses

from ..command import apart, options
from ..command.frame import Report, perform
from ..command.options import within
from ..measure.question import Kind, Question
from ..peers import catalogue
from ..report.comparison import figures, versions
from ..report.table import Notes, render
from ..report.targets import (
    CORE,
    HEADINGS,
    IDLE,
    SEND,
    Verdict,
    about_floors,
    core_targets,
    judge,
    judge_footprint,
    summary,
)
from ..subjects.own import Shmnd, ShmndCrowd, ShmndNative, ShmndUvloop
from ..subjects.rounds import Answers, Record
from ..subjects.subject import Subject

HELP = "compare shmnd with its peers in interleaved rounds, with ratios and their spread"
EXAMPLE = "shmnd bench compare pingpong -s 40 --quick"

_CORE = "core"
_KINDS = {
    "pingpong": (Kind.PINGPONG,),
    "rpingpong": (Kind.WRITE,),
    "read-lat": (Kind.READ,),
    "ping": (Kind.STREAM,),
    "rping": (Kind.WRITE_STREAM, Kind.READ_STREAM),
}
_SIZES = {"ping": [8, 65536, 1 << 20], "rping": [65536, 1 << 20]}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "what",
        nargs="?",
        choices=(_CORE, *_KINDS),
        default=_CORE,
        help="the command to compare (default: core, with verdicts on its targets)",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        *("-s", "--size"),
        type=options.sizes,
        metavar="N,…",
        dest="sizes",
        help="bytes, as in 40,4K,1M; not with core, whose sizes are those of its targets",
    )
    sizes.add_argument(
        *("-a", "--all"),
        action="store_const",
        const=list(options.ALL_SIZES),
        dest="sizes",
        help="all powers of two from 2 bytes to 8 MiB",
    )
    catalogue.add_options(parser)
    parser.add_argument(
        "--idle",
        type=within(int, 0, 8000),
        default=IDLE,
        metavar="N",
        help=f"idle connections next to the measured one (default {IDLE}; 0: none)",
    )
    options.add_common(parser)
    apart.add_options(parser, "compare")


def run(args: argparse.Namespace) -> int:
    """Measure, print the verdicts if there are any, and then every figure."""
    if args.what == _CORE and args.sizes:
        args.complain("core has sizes of its own; name another command for -s or -a")
    subjects: list[Subject] = [Shmnd(args.namespace), ShmndNative(args.namespace)]
    peers = catalogue.chosen(args)
    # Single rounds are timed if an output shows them, separately from the compared rounds.
    record = Record.APART if args.plot or args.hdr or args.json or args.csv else Record.NEVER
    compare = _compare_core if args.what == _CORE else _compare_command
    return compare(args, subjects, peers, record)


def _compare_command(
    args: argparse.Namespace, subjects: list[Subject], peers: list[Subject], record: Record
) -> int:
    """Compare one command, at sizes of the user's choice, and return the exit code."""
    sizes = args.sizes or _SIZES.get(args.what, [SEND.size])
    questions = [Question(kind, size) for kind in _KINDS[args.what] for size in sizes]

    def conclude(answers: Answers) -> Report:
        notes = Notes()
        parts = [figures(answers, questions, notes), "\n".join(notes.lines())]
        text = "\n\n".join([*filter(None, parts), versions(answers)])
        return Report(text, {"command": "compare", "what": args.what})

    return perform(args, questions, [*subjects, *peers], conclude, record=record)


def _compare_core(
    args: argparse.Namespace, subjects: list[Subject], peers: list[Subject], record: Record
) -> int:
    """Measure the figures of the targets, judge each, and return the exit code."""
    crowd = ShmndCrowd(args.namespace)
    subjects.append(ShmndUvloop(args.namespace))
    questions = [*CORE]
    if args.idle:
        questions.append(dataclasses.replace(SEND, idle=args.idle))
        subjects.append(crowd)

    def conclude(answers: Answers) -> Report:
        judged = verdicts(answers, args.idle, crowd.bytes_per_idle)
        notes = Notes()
        parts = [
            render(HEADINGS, [verdict.cells(notes) for verdict in judged], right=" r r"),
            summary(judged),
            *about_floors(judged),
            figures(answers, questions, notes),
            *filter(None, ["\n".join(notes.lines())]),
            versions(answers),
        ]
        data = {
            "command": "compare",
            "what": _CORE,
            "verdicts": [verdict.as_json() for verdict in judged],
            "bytes_per_idle_connection": crowd.bytes_per_idle,
        }
        return Report("\n\n".join(parts), data)

    return perform(args, questions, [*subjects, *peers], conclude, record=record)


def verdicts(answers: Answers, idle: int, bytes_per_idle: float | None) -> list[Verdict]:
    """Return the verdicts on all targets of the core."""
    judged = [judge(target, answers) for target in core_targets(idle)]
    if idle:
        judged.append(judge_footprint(bytes_per_idle))
    return judged
