# SPDX-License-Identifier: Apache-2.0
"""The frame of every run: describe the machine, measure, and write the report in all forms."""

import argparse
import dataclasses
import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ..measure import histogram
from ..measure.environment import Environment, choose_cpus
from ..measure.question import Question
from ..report import figures, plot
from ..subjects.rounds import Answers, Record, Run
from ..subjects.subject import Subject
from . import apart, options

SCHEMA = 2
"""Version of the form of JSON reports."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a benchmark found: for people and for programs."""

    text: str
    data: dict[str, Any]
    failed: bool = False
    """What the command is for could not be measured."""


@dataclasses.dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rounds: int
    seconds: float
    count: int | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Extent":
        """Return the extent that the options name, with their defaults."""
        return cls(
            args.rounds or (options.QUICK_ROUNDS if args.quick else options.ROUNDS),
            args.seconds or (options.QUICK_SECONDS if args.quick else options.SECONDS),
            args.iterations,
        )

    def describe(self) -> str:
        """Return it in words."""
        each = f"{self.count:,} messages" if self.count else f"{self.seconds:g} s"
        return f"{self.rounds} rounds of {each} each"


def perform(
    args: argparse.Namespace,
    questions: Sequence[Question],
    subjects: Sequence[Subject],
    conclude: Callable[[Answers], Report],
    *,
    record: Record = Record.NEVER,
    together: Callable[[Question], object] | None = None,
) -> int:
    """Run a benchmark or a server as the options say; return the exit code.

    `record` says whether each round of a loop is timed by itself. Questions in a row of which
    `together` returns the same are measured in the rounds of one run, and the next ones after it.
    """
    if args.server is not None:
        return apart.serve(args)
    check_outputs(args)
    cpus = args.pin or choose_cpus([])
    environment = Environment.collect(cpus)
    extent = Extent.of(args)
    parts = [[*part] for _, part in itertools.groupby(questions, together or _all_alike)]
    part_of = ""
    with progress(args) as tell, apart.stage(args, cpus) as stage:
        run = Run(
            stage,
            rounds=extent.rounds,
            seconds=extent.seconds,
            count=extent.count,
            record=record,
            progress=lambda text: tell(part_of + text),
        )
        for number, part in enumerate(parts, 1):
            part_of = f"part {number} of {len(parts)}, " if len(parts) > 1 else ""
            run.ask(part, subjects)
    report = conclude(run.answers)
    data = {
        "schema": SCHEMA,
        "environment": environment.as_json(),
        "warnings": environment.warnings(),
        "versions": run.answers.versions,
        "rounds": extent.rounds,
        "seconds": extent.seconds,
        "iterations": extent.count,
        "server": apart.describe(args),
        "answers": run.answers.as_json(),
        **report.data,
    }
    write_outputs(args, run.answers, data)
    if args.format == "json":
        print(json.dumps(data, indent=1))
    elif options.STDOUT not in (args.json, args.csv, args.hdr):
        _print_report(args, environment, extent, report)
    return int(report.failed)


def _print_report(
    args: argparse.Namespace, environment: Environment, extent: Extent, report: Report
) -> None:
    print("\n".join(environment.lines()))
    print(", ".join(filter(None, [extent.describe(), apart.describe(args)])) + "\n")
    print(report.text)
    for warning in environment.warnings():
        print(f"warning: {warning}")


def _all_alike(question: Question) -> object:
    return None


def check_outputs(args: argparse.Namespace) -> None:
    """Reject an output that cannot be written before anything is measured."""
    for path in (args.json, args.csv, args.hdr, args.plot):
        if path is not None and not path.absolute().parent.is_dir():
            args.complain(f"there is no folder {path.absolute().parent} for {path.name}")
    if args.plot is not None and args.plot.suffix.lower() != ".png":
        args.complain(f"--plot writes PNG files, and {args.plot.name!r} does not end in .png")
    printed = [args.json, args.csv, args.hdr].count(options.STDOUT)
    if printed + (args.format == "json") > 1:
        args.complain("of --json, --csv and --hdr without FILE, and --format json, one is printed")
    problems = [args.hdr and histogram.missing(), args.plot and plot.missing()]
    for problem in filter(None, problems):
        raise ImportError(problem)


def write_outputs(args: argparse.Namespace, answers: Answers, data: dict[str, Any]) -> None:
    """Write the requested files."""
    if args.json:
        args.json.write_text(json.dumps(data, indent=1) + "\n")
    if args.csv:
        figures.write_csv(args.csv, answers)
    if args.hdr:
        histograms = ((answer, figures.histogram_of(answer)) for answer in answers)
        histogram.write(
            args.hdr,
            ((f"{a.question.label}, {a.subject}", h) for a, h in histograms if h is not None),
        )
    if args.plot:
        draw(args.plot, answers)


def draw(path: Path, answers: Answers) -> None:
    """Plot the answers; if all failed, print a warning and write no file."""
    try:
        plot.draw(path, answers)
    except ValueError as exc:
        print(f"warning: no picture: {exc}", file=sys.stderr)


@contextmanager
def progress(args: argparse.Namespace) -> Iterator[Callable[[str], None]]:
    """Provide a progress line, and an orderly end on SIGTERM."""
    line = _Progress(args.progress)
    before = signal.signal(signal.SIGTERM, _exit_by_signal)
    try:
        yield line
    finally:
        signal.signal(signal.SIGTERM, before)
        line.clear()


class _Progress:
    """One line on the terminal, or lines below each other where they were asked for."""

    def __init__(self, wanted: bool) -> None:
        self._terminal = sys.stderr.isatty()
        self._wanted = wanted

    def __call__(self, text: str) -> None:
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        elif self._wanted:
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        if self._terminal:
            self("")


def _exit_by_signal(signum: int, frame: FrameType | None) -> NoReturn:
    # As an exception, so that the stage ends its processes.
    raise SystemExit(128 + signum)
