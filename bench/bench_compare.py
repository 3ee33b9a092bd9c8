# SPDX-License-Identifier: Apache-2.0
"""Is it faster than the others, and by how much? Side by side, in the rounds of one run."""

import argparse
import dataclasses
import functools
from collections.abc import Callable

from .frame import Report, perform
from .options import add_common, within
from .own import Shmnd, ShmndCrowd, ShmndNative
from .peers.libfabric import FiPingpong
from .peers.memcpy import Memcpy, PrivateMemcpy
from .peers.mpi import OpenMpi
from .peers.pipe import Pipe
from .question import Question
from .rounds import Answers
from .subject import Subject
from .table import Notes, in_unit, number, render, unit
from .targets import (
    HEADINGS,
    IDLE,
    RATE,
    SEND,
    STREAMS,
    WRITE,
    core_targets,
    judge,
    judge_footprint,
    summary,
)

HELP = "shmnd beside its peers and memcpy, in interleaved rounds, with verdicts on its targets"

_PEERS: dict[str, Callable[[argparse.Namespace], Subject]] = {
    "openmpi": lambda args: OpenMpi(args.mpi_python),
    "fi_pingpong": lambda _: FiPingpong(),
    "memcpy": lambda _: Memcpy(),
    "memcpy-private": lambda _: PrivateMemcpy(),
    "pipe": lambda _: Pipe(),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--peers",
        type=_peers,
        default=list(_PEERS),
        metavar="NAME,…",
        help=f"peers to take (default: {','.join(_PEERS)})",
    )
    parser.add_argument(
        "--mpi-python",
        metavar="FILE",
        help="interpreter that has mpi4py (default: the one that runs this)",
    )
    parser.add_argument(
        "--idle",
        type=within(int, 0, 8000),
        default=IDLE,
        metavar="N",
        help=f"idle connections beside a measured one (default {IDLE}; 0: leave that out)",
    )
    add_common(parser)


def _peers(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in _PEERS:
            raise argparse.ArgumentTypeError(f"no peer {name!r}; there are {', '.join(_PEERS)}")
    return names


def run(args: argparse.Namespace) -> int:
    """Measure, print the verdicts and then every figure."""
    crowd = ShmndCrowd(args.namespace)
    questions = [SEND, WRITE, RATE, *STREAMS]
    subjects: list[Subject] = [Shmnd(args.namespace), ShmndNative(args.namespace)]
    if args.idle:
        questions.append(dataclasses.replace(SEND, idle=args.idle))
        subjects.append(crowd)
    subjects += [_PEERS[name](args) for name in args.peers]

    def conclude(answers: Answers) -> Report:
        verdicts = [judge(target, answers) for target in core_targets(args.idle)]
        if args.idle:
            verdicts.append(judge_footprint(crowd.bytes_per_idle))
        notes = Notes()
        parts = [
            render(HEADINGS, [verdict.cells(notes) for verdict in verdicts], right=" r r"),
            summary(verdicts),
            _figures(answers, questions, [subject.name for subject in subjects], notes),
            *filter(None, ["\n".join(notes.lines())]),
            _versions(answers),
        ]
        data = {
            "command": "compare",
            "verdicts": [verdict.as_json() for verdict in verdicts],
            "bytes_per_idle_connection": crowd.bytes_per_idle,
        }
        return Report("\n\n".join(parts), data)

    return perform(args, questions, subjects, conclude)


def _figures(answers: Answers, questions: list[Question], subjects: list[str], notes: Notes) -> str:
    rows = []
    for question in questions:
        for subject in subjects:
            answer = answers.get(subject, question)
            if answer is None:
                continue
            if answer.spread is None:
                rows.append([question.label, subject, notes.refer(answer.reason), ""])
                continue
            spread = answer.spread.map(functools.partial(in_unit, question))
            rows.append([question.label, subject, spread.format(number), unit(question)])
    return render(("question", "subject", "median (least..greatest)", ""), rows)


def _versions(answers: Answers) -> str:
    told = [
        f"{subject}: " + ", ".join(f"{name} {version}" for name, version in versions.items())
        for subject, versions in answers.versions.items()
    ]
    return "\n".join(told)
