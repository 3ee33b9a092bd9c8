# SPDX-License-Identifier: Apache-2.0
"""The options that the benchmarks share, and the frame that every run of one has."""

import argparse
import dataclasses
import json
import math
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from .environment import Environment, choose_cpus
from .harness import Stage
from .leash import parse_cpus
from .question import Question
from .rounds import Answers, Run
from .subject import Subject

_ROUNDS, _SECONDS = 9, 0.2
_QUICK_ROUNDS, _QUICK_SECONDS = 3, 0.05

SCHEMA = 1
"""Version of the form of JSON reports."""


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options of every benchmark."""
    parser.add_argument("--rounds", type=within(int, 1, 10_000), help=f"rounds (default {_ROUNDS})")
    parser.add_argument(
        *("-D", "--seconds"),
        type=within(float, 0.001, 20),
        help=f"seconds of each measurement of a round (default {_SECONDS:g})",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{_QUICK_ROUNDS} rounds of {_QUICK_SECONDS:g} s, unless said otherwise",
    )
    parser.add_argument(
        "--pin",
        type=_cpus,
        metavar="A,B",
        help="CPUs of client and server (default: the first two allowed)",
    )
    parser.add_argument("--namespace", help="namespace of the adapters (default: the usual one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="form of the output"
    )


def within(
    kind: Callable[[str], int] | Callable[[str], float], low: float, high: float
) -> Callable[[str], float]:
    """Give a reader of numbers for argparse that says which ones are allowed."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
        return value

    return read


def _cpus(text: str) -> list[int]:
    try:
        return choose_cpus(parse_cpus(text))
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a benchmark found: for people and for programs."""

    text: str
    data: dict[str, Any]
    failed: bool = False
    """What the command is for could not be measured."""


def perform(
    args: argparse.Namespace,
    questions: Sequence[Question],
    subjects: Sequence[Subject],
    conclude: Callable[[Answers], Report],
) -> int:
    """Run a benchmark as the options say, and print and write its report."""
    cpus = args.pin or choose_cpus([])
    environment = Environment.collect(cpus)
    rounds = args.rounds or (_QUICK_ROUNDS if args.quick else _ROUNDS)
    seconds = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS)
    progress = _Progress()
    before = signal.signal(signal.SIGTERM, _exit_by_signal)
    try:
        with Stage(cpus) as stage:
            run = Run(stage, rounds=rounds, seconds=seconds, progress=progress)
            run.ask(questions, subjects)
    finally:
        signal.signal(signal.SIGTERM, before)
        progress.clear()
    report = conclude(run.answers)
    data = {
        "schema": SCHEMA,
        "environment": environment.as_json(),
        "warnings": environment.warnings(),
        "versions": run.answers.versions,
        "rounds": rounds,
        "seconds": seconds,
        "answers": run.answers.as_json(),
        **report.data,
    }
    if args.json:
        args.json.write_text(json.dumps(data, indent=1) + "\n")
    if args.format == "json":
        print(json.dumps(data, indent=1))
        return int(report.failed)
    print("\n".join(environment.lines()))
    print(f"{rounds} rounds of {seconds:g} s each; medians (least..greatest)\n")
    print(report.text)
    for warning in environment.warnings():
        print(f"warning: {warning}")
    return int(report.failed)


class _Progress:
    """One line on the terminal that says what is going on; silent when that is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        self("")


def _exit_by_signal(signum: int, frame: FrameType | None) -> NoReturn:
    # As an exception, so that the stage ends its processes.
    raise SystemExit(128 + signum)
