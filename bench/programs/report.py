# SPDX-License-Identifier: Apache-2.0
"""The whole comparison as one page: tables, plots, and a verdict on every target.

The results are stored next to the page, section by section, so that a long run can be split and a
section can be repeated. The page is written from the stored sections.
"""

import argparse
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ..command import apart, options
from ..command.frame import Extent, progress
from ..measure.environment import Environment, choose_cpus
from ..peers import catalogue
from ..report import plot
from ..report.table import Notes, markdown
from ..report.targets import HEADINGS, IDLE
from ..subjects.many import Many
from ..subjects.own import ShmndCrowd
from ..subjects.rounds import Answers, Run
from ..workers.harness import Stage
from .compare import verdicts
from .connections import bytes_each
from .sections import SECTIONS, Section, Taken

HELP = "compare everything with the peers, in one Markdown page with tables and plots"
EXAMPLE = "shmnd bench report --folder benchmarks --resume"

_PAGE: Final = "report.md"
_DATA: Final = "report.json"
_BEGIN, _END = "<!-- figures: shmnd bench report --into -->", "<!-- end of figures -->"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("benchmarks"),
        help="the folder of the page and its plots (default: benchmarks)",
    )
    parser.add_argument(
        "--sections",
        type=options.words(SECTIONS),
        default=list(SECTIONS),
        metavar="NAME,…",
        help=f"the sections to measure (default {','.join(SECTIONS)})",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the sections that an earlier run measured in the folder",
    )
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FILE",
        help=f"also write the verdicts into FILE, between the lines {_BEGIN} and {_END}",
    )
    catalogue.add_options(parser)
    options.add_common(parser)
    apart.add_options(parser, "report")


def run(args: argparse.Namespace) -> int:
    """Measure the chosen sections and write the page from all stored ones; or run as a server."""
    if args.server is not None:
        return apart.serve(args)
    problem = plot.missing()
    if problem:
        raise ImportError(problem)
    if any((args.json, args.csv, args.hdr, args.plot)):
        args.complain("report writes its own files; name their --folder")
    if args.into and _BEGIN not in args.into.read_text():
        args.complain(f"there is no line {_BEGIN} in {args.into}")
    args.folder.mkdir(parents=True, exist_ok=True)
    data = args.folder / _DATA
    taken: dict[str, Any] = {}
    if args.resume and data.exists():
        taken = json.loads(data.read_text())
    cpus = args.pin or choose_cpus([])
    with progress(args) as tell, apart.stage(args, cpus) as stage:
        for name in args.sections:
            if args.resume and name in taken:
                continue
            taken[name] = _measure(SECTIONS[name], args, stage, tell)
            # At once, so that a run that is ended later keeps its finished sections.
            data.write_text(json.dumps(taken) + "\n")
    page = write(args.folder, taken)
    print(f"written: {page}")
    if args.into:
        _put_into(args.into, taken)
    return 0


def _measure(
    section: Section,
    args: argparse.Namespace,
    stage: Stage,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    environment = Environment.collect(stage.cpus)
    extent = Extent.of(args)
    questions, subjects = section.ask(args)

    def say(text: str) -> None:
        tell(f"{section.title}: {text}")

    run = Run(
        stage,
        rounds=extent.rounds,
        seconds=extent.seconds * section.share,
        count=extent.count,
        record=section.record,
        progress=say,
    )
    run.ask(questions, subjects)
    facts = section.once(stage, say) if section.once else {}
    for subject in subjects:
        if isinstance(subject, ShmndCrowd):
            facts["bytes_per_idle"] = subject.bytes_per_idle
        elif isinstance(subject, Many):
            facts["bytes_each"] = bytes_each(subject)
    return {
        "when": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "extent": ", ".join(filter(None, [extent.describe(), apart.describe(args)])),
        "environment": environment.lines(),
        "warnings": environment.warnings(),
        "answers": run.answers.dump(),
        "versions": run.answers.versions,
        "facts": facts,
    }


def write(folder: Path, taken: dict[str, Any]) -> Path:
    """Write the page and its plots, with the measured sections; return its path."""
    parts = ["# Benchmark report", _PREFACE]
    for name, section in SECTIONS.items():
        if name in taken:
            parts += _part(folder, section, taken[name])
    page = folder / _PAGE
    page.write_text("\n\n".join(parts) + "\n")
    return page


def _part(folder: Path, section: Section, data: dict[str, Any]) -> list[str]:
    found = Taken(Answers.load(data["answers"]), data["facts"])
    parts = [f"## {section.title}", section.text]
    warnings = [f"**Warning:** {warning}" for warning in data["warnings"]]
    parts.append("\n".join(f"- {line}" for line in _circumstances(data)))
    parts += warnings
    if section.picture and any(answer.spread for answer in found.answers):
        plot.draw(
            folder / section.picture,
            found.answers,
            panels=section.panels,
            columns=section.columns,
        )
        parts.append(f"![{section.title}]({section.picture})")
    return [*parts, *section.lines(found)]


def _circumstances(data: dict[str, Any]) -> list[str]:
    versions = "; ".join(
        f"{subject}: {', '.join(f'{name} {version}' for name, version in named.items())}"
        for subject, named in data["versions"].items()
        if named
    )
    return [f"{data['when']}, {data['extent']}", *data["environment"], versions]


def _put_into(path: Path, taken: dict[str, Any]) -> None:
    if "core" not in taken:
        return
    data = taken["core"]
    answers, notes = Answers.load(data["answers"]), Notes()
    judged = verdicts(answers, IDLE, data["facts"].get("bytes_per_idle"))
    parts = [
        f"{data['when']}; {data['extent']}.\n" + "\n".join(data["environment"][:2]),
        markdown(HEADINGS, [verdict.cells(notes) for verdict in judged]),
        *notes.paragraphs(),
    ]
    before, _, rest = path.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    block = "\n\n".join([_BEGIN, *parts, _END])
    path.write_text(f"{before}{block}{after}")


_PREFACE: Final = (
    "`shmnd bench report` writes this page and repeats the measurements. All subjects of a "
    "section are measured in interleaved rounds of one run, with each process pinned to a "
    "separate CPU. Figures of different sections must not be compared. `shmnd` is a loop in "
    "Python over the public interface, `shmnd native` the same loop in the compiled module. Pipe, "
    "POSIX mq and pyzmq sleep in the kernel until a message arrives, as programs use them; all "
    "others poll continuously, unless a row says otherwise. A peer that is missing or failed has "
    "a note instead of a figure."
)
