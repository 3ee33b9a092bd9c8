# SPDX-License-Identifier: Apache-2.0
"""Programs for mpi4py: every row has an answer, every target a row; the plot, jobs by ranks."""

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shmnd_bench.measure import environment
from shmnd_bench.measure.question import COLLECTIVES, Kind, Question
from shmnd_bench.peers import mpi_ranks
from shmnd_bench.peers.mpi import OpenMpi, ShmndMpi
from shmnd_bench.programs import report
from shmnd_bench.programs.sections import SECTIONS
from shmnd_bench.report import mpi_plot, plot
from shmnd_bench.report.table import Notes
from shmnd_bench.report.targets import (
    MPI_ARRAYS,
    MPI_BETWEEN,
    MPI_COLLECTIVES,
    MPI_OBJECTS,
    MPI_PINGS,
    MPI_RANKS,
    MPI_STREAMS,
    MPI_WINDOW,
    mpi_targets,
)
from shmnd_bench.subjects.rounds import Answer
from shmnd_bench.subjects.subject import Subject
from shmnd_bench.workers.child import HarnessError
from shmnd_bench.workers.harness import Stage
from shmnd_tools.main import main

MESSAGES = [*MPI_PINGS, *MPI_ARRAYS, *MPI_STREAMS, *MPI_BETWEEN]
QUESTIONS = [*MESSAGES, MPI_WINDOW, *MPI_OBJECTS, *MPI_COLLECTIVES]


def test_each_question_is_for_one_number_of_ranks() -> None:
    subjects = [ShmndMpi(ranks=ranks) for ranks in MPI_RANKS]
    for question in QUESTIONS:
        assert [each.answers(question) for each in subjects].count(True) == 1, question.label


def test_every_target_names_subjects_that_answer_its_question() -> None:
    subjects = {
        each.name: each for kind in (ShmndMpi, OpenMpi) for each in map(kind().crowded, MPI_RANKS)
    }
    targets = mpi_targets()
    assert {target.question for target in targets} <= set(QUESTIONS)
    for target in targets:
        assert target.against is not None
        assert subjects[target.subject].answers(target.question), target.label
        assert subjects[target.against].answers(target.question), target.label


def test_labels_are_different() -> None:
    labels = [question.label for question in QUESTIONS]
    assert len(set(labels)) == len(labels)
    assert Question(Kind.PICKLED, 0).label == "small dict, one way"
    assert Question(Kind.BARRIER, 0).label == "Barrier"


@pytest.mark.parametrize("ranks", MPI_RANKS)
def test_ranks_answer_every_question_of_their_number(ranks: int) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    with Stage(cpus) as stage:
        subject = ShmndMpi(ranks=ranks)
        subject.start(stage)
        for question in filter(subject.answers, QUESTIONS):
            if question.size <= 100_000:
                assert subject.measure(question, 3).seconds > 0, question.label
        subject.stop()
    assert ranks == 2 or all(
        question.kind in COLLECTIVES for question in filter(subject.answers, QUESTIONS)
    )


# -- the plot -------------------------------------------------------------------------------------


class Axes:
    """Axes that keep the lines."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
        self.looks: dict[str, tuple[str, str]] = {}

    def errorbar(
        self, places: Sequence[float], values: Sequence[float], *, label: str, **look: Any
    ) -> None:
        self.lines[label] = places, values
        self.looks[label] = look["color"], look["linestyle"]

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **named: None


def _all_answers() -> list[Answer]:
    subjects = [kind(ranks=ranks) for kind in (ShmndMpi, OpenMpi) for ranks in MPI_RANKS]
    return [
        Answer(subject.name, question, 1, [1e-6, 3e-6, 2e-6])
        for question in QUESTIONS
        for subject in subjects
        if subject.answers(question)
    ]


def _drawn(panel: plot.Panel) -> Axes:
    axes = Axes()
    assert panel(axes, _all_answers(), {})
    return axes


def test_the_panels_have_messages_over_size_and_collectives_over_size_and_ranks() -> None:
    pings, streams, ranks, *collectives = map(_drawn, mpi_plot.PANELS)
    sizes = [8, 512, 4 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20]
    assert pings.lines["mpi4py shmnd"] == (sizes, [2.0] * len(sizes))
    assert pings.lines["mpi4py Open MPI, numpy memory"][0] == sizes[3:]
    assert streams.lines["mpi4py shmnd"][0] == [8, 512, 4 << 10, 64 << 10, 1 << 20]
    assert streams.lines["mpi4py shmnd"][1][0] == pytest.approx(4.0)
    names = ("Barrier", "8 B Bcast", "8 B Allreduce", "8 B Alltoall")
    for name in names:
        assert ranks.lines[f"mpi4py shmnd, {name}"] == (list(MPI_RANKS), [2.0, 2.0])
    assert len(ranks.lines) == 2 * len(names)
    for panel in collectives:
        assert set(panel.lines) == {
            f"mpi4py {library}, {number} ranks"
            for library in ("shmnd", "Open MPI")
            for number in MPI_RANKS
        }
        assert all(places == [8, 1 << 10, 64 << 10, 1 << 20] for places, _ in panel.lines.values())


def test_lines_of_a_panel_look_different_and_a_colour_is_an_implementation() -> None:
    for panel in mpi_plot.PANELS:
        looks = _drawn(panel).looks
        assert len(set(looks.values())) == len(looks)
        for name, (colour, _) in looks.items():
            assert colour == looks[next(first for first in looks if first[:12] == name[:12])][0]


DRAW = f"""
import sys
sys.path[:0] = {sys.path!r}
import json
from pathlib import Path
from shmnd_bench.report import mpi_plot, plot
from shmnd_bench.subjects.rounds import Answers
answers = Answers.load(json.load(sys.stdin))
plot.draw(Path(sys.argv[1]), answers, panels=mpi_plot.PANELS, columns=mpi_plot.COLUMNS)
"""


@pytest.mark.parametrize("count", [None, 3])
def test_the_plot_is_a_file_also_where_panels_have_no_answers(
    count: int | None, tmp_path: Path
) -> None:
    """Another process draws: the library keeps its fonts open."""
    pytest.importorskip("matplotlib")
    file = tmp_path / "mpi.png"
    answers = json.dumps([answer.dump() for answer in _all_answers()[:count]])
    line = [sys.executable, "-c", DRAW, str(file)]
    subprocess.run(line, input=answers, text=True, check=True, timeout=100)
    assert file.read_bytes().startswith(b"\x89PNG")
    assert not any(panel(None, [], {}) for panel in mpi_plot.PANELS)


# -- jobs by the number of their ranks ------------------------------------------------------------


def _stage() -> Stage:
    return Stage(sorted(os.sched_getaffinity(0))[:2])


def test_a_job_has_its_memory_its_lanes_and_the_time_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules of the current folder are not used, and nothing is left behind."""
    for name in ("json", "subprocess"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('of the current folder')")
    monkeypatch.chdir(tmp_path)
    with _stage() as stage:
        jobs = mpi_ranks.measure(stage, lambda text: None, (2, 3))["jobs"]
        assert not stage.children
    for ranks, job in zip((2, 3), jobs, strict=True):
        assert job["error"] == ""
        assert job["bytes"] > ranks * ranks * 4096
        assert job["seconds"] > 0
        assert job["python"] > 0
        cells = mpi_ranks.Job(**job).cells(Notes())
        assert (cells[0], cells[2]) == (str(ranks), str(ranks * ranks))
        assert "" not in cells


def test_a_job_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_ranks, "_RANK", "raise SystemExit('no such memory')")
    with _stage() as stage:
        facts = mpi_ranks.measure(stage, lambda text: None, (2,))
    text = "\n".join(mpi_ranks.paragraphs(facts))
    assert "| 2 | - [1] |" in text
    assert "2 ranks: python ended with 1: shmnd mpiexec" in text


@pytest.mark.parametrize("program", ["", "print('not JSON')", "print(1)", "print('{}')"])
def test_a_job_that_writes_something_else_is_a_row(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_ranks, "_RANK", program)
    with _stage() as stage:
        (job,) = mpi_ranks.measure(stage, lambda text: None, (1,))["jobs"]
    assert "1 ranks: rank 0 wrote" in job["error"]


def test_a_job_without_the_module_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ShmndMpi, "missing", lambda self: "no shmnd.mpi")
    with _stage() as stage, pytest.raises(HarnessError, match=r"no shmnd\.mpi"):
        mpi_ranks.job(stage, 2)


def test_the_section_has_the_plot_and_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page from results of an earlier version, which lack the jobs, has no such table."""

    def few(args: argparse.Namespace) -> tuple[list[Question], list[Subject]]:
        return list(MPI_PINGS[:2]), [ShmndMpi()]

    section = dataclasses.replace(
        SECTIONS["mpi"], ask=few, once=functools.partial(mpi_ranks.measure, numbers=(2,))
    )
    monkeypatch.setitem(SECTIONS, "mpi", section)
    drawn: list[tuple[Path, dict[str, Any]]] = []
    monkeypatch.setattr(plot, "missing", lambda: None)
    monkeypatch.setattr(plot, "draw", lambda path, _, **layout: drawn.append((path, layout)))
    short = functools.partial(environment.measure_noise, seconds=0.01)
    monkeypatch.setattr(environment, "measure_noise", short)
    options = ["--folder", str(tmp_path), "--sections", "mpi", "--rounds", "1", "-n", "20"]
    assert main(["bench", "report", *options]) == 0
    page = (tmp_path / "report.md").read_text()
    assert "![Programs for mpi4py](mpi.png)" in page
    layout = {"panels": mpi_plot.PANELS, "columns": mpi_plot.COLUMNS}
    assert drawn == [(tmp_path / "mpi.png", layout)]
    after = page.partition(mpi_ranks.TITLE)[2].partition("### Targets")[0]
    assert [line.split("|")[1].strip() for line in after.splitlines() if line[:1] == "|"] == [
        *("ranks", "---", "2")
    ]

    taken = json.loads((tmp_path / "report.json").read_text())
    taken["mpi"]["facts"] = {}
    for answer in taken["mpi"]["answers"]:
        answer["error"] = "failed"
    page = report.write(tmp_path, taken).read_text()
    assert mpi_ranks.TITLE not in page
    assert "mpi.png" not in page
