# SPDX-License-Identifier: Apache-2.0
"""The commands as a whole: options, tables, JSON, and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from shmnd_bench.measure import environment
from shmnd_bench.measure.environment import (
    Environment,
    Noise,
    choose_cpus,
    measure_noise,
    shared_memory_used,
)
from shmnd_bench.report.targets import core_targets
from shmnd_tools.main import main


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["core", "--rounds", "0"], "'0' is not a number from 1 to 10000"),
        (["core", "--rounds", "many"], "'many' is not a number from 1 to 10000"),
        (["core", "-D", "nan"], "'nan' is not a number from 0.001 to 20"),
        (["core", "--size", "-1"], "'-1' is not a number from 1 to"),
        (["pingpong", "-s", "0"], "'0' is not a size from 1 to 1G"),
        (["pingpong", "-s", "40,big"], "'big' is not a size from 1 to 1G"),
        (["pingpong", "-s", "40", "-a"], "not allowed with argument"),
        (["pingpong", "-e", "--wait", "poll"], "not allowed with argument"),
        (
            ["ping", "--engine", "native", "--face", "nd1"],
            "native is below both versions of the interface: --face nd1",
        ),
        (["pingpong", "-I", "1025"], "'1025' is not a number from 0 to 1024"),
        (["read-lat", "-I", "64"], "'-I' is not an option here; --help lists the options"),
        (["pingpong", "--rate", "0"], "'0' is not a number from 0.1 to"),
        (["pingpong", "--rat", "9"], "'--rat' is not an option here, did you mean '--rate'?"),
        (["pingpong", "--raet", "5"], "'--raet' is not an option here, did you mean '--rate'?"),
        (["ping", "--rate", "5"], "'--rate' is not an option here; --help lists the options"),
        (
            ["pingpong", "--memory", "cloud"],
            "--memory: 'cloud' is not known; it is one of segment, private",
        ),
        (["pingpong", "-q", "2"], "'-q' is not an option here; --help lists the options"),
        (["ping", "-q", "0"], "'0' is not a number from 1 to 1024"),
        (["ping", "-t", "many"], "'many' is not a number from 1 to 4096"),
        (
            ["ping", "--flow", "uphill"],
            "--flow: 'uphill' is not known; it is one of credit, receives",
        ),
        (["rping", "-r", "5"], "'-r' is not an option here; --help lists the options"),
        (["read-lat", "-n", "0"], "'0' is not a number from 1 to 5e+06"),
        (["pingpong", "--plot", "/tmp/a.jpg"], "does not end in .png"),
        (["pingpong", "--csv", "/no/such/folder/a.csv"], "there is no folder /no/such/folder"),
        (["pingpong", "--json", "--csv"], "one is printed"),
        (["pingpong", "--hdr", "--format", "json"], "one is printed"),
        (["pingpong", "--client", "host:port"], "'host:port' is not an address as"),
        (["pingpong", "--server", "host:99999"], "'host:99999' is not an address as"),
        (["pingpong", "--server", "--client", "::1"], "not allowed with argument"),
        (["mrlat", "--server"], "--server: memory is registered by one process alone, so there"),
        (["mrrate", "--client", "::1"], "--client: memory is registered by one process alone"),
        (["scale", "--client", "::1", "--processes", "2"], "--processes starts all of its own"),
        (["core", "--pin", "0,100000"], "--pin takes two of the CPUs"),
        (["core", "--pin", "0"], "--pin takes two of the CPUs"),
        (["core", "--pin", "a,b"], "invalid literal"),
        (["core", "--engine", "nativ"], "'nativ' is not known, did you mean 'native'?"),
        (
            ["core", "--engine", "steam"],
            "--engine: 'steam' is not known; it is one of python, native, both",
        ),
        (["compare", "--peers", "pipe,telepathy"], "no peer 'telepathy'; there are openmpi, "),
        (["compare", "--idle", "9000"], "'9000' is not a number from 0 to 8000"),
        (["nothing"], "argument verb: 'nothing' is not known; it is one of core, "),
        (["pingpnog"], "argument verb: 'pingpnog' is not known, did you mean 'pingpong'?"),
    ],
)
def test_a_bad_option_is_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["bench", *arguments])
    assert exited.value.code == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert said.startswith("shmnd")


@pytest.mark.slow
def test_compare_writes_its_measurements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    options = ["--rounds", "2", "-D", "0.002", "--idle", "0", "--json", str(file)]
    assert main(["bench", "compare", "--peers", "pipe", *options]) == 0
    report: dict[str, Any] = json.loads(file.read_text())
    assert report["schema"] == 2
    assert report["command"] == "compare"
    assert report["rounds"] == 2
    assert report["environment"]["kernel"]
    assert len(report["verdicts"]) == len(core_targets(idle=0))
    piped = [answer for answer in report["answers"] if answer["subject"] == "Pipe"]
    waits = [answer["question"]["how"].get("wait") for answer in piped]
    assert waits == [None, "event", None, None, None, None]
    assert all(len(answer["seconds_per_message"]) == 2 for answer in piped)
    table = capsys.readouterr().out
    # What could not be held against a peer that was left out is unknown, and no error.
    assert "unknown" in table
    assert "64 KiB stream" in table


@pytest.mark.slow
def test_json_output_is_nothing_but_json(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rounds", "1", "-D", "0.001", "--idle", "0", "--format", "json"]
    assert main(["bench", "compare", "--peers", "memcpy", *options]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "compare"


def test_cpus_are_the_first_two_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: {5, 3, 9})
    assert choose_cpus([]) == [3, 5]
    assert choose_cpus([9, 3]) == [9, 3]
    with pytest.raises(ValueError, match="3, 5, 9, not 3,4"):
        choose_cpus([3, 4])
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: {7})
    assert choose_cpus([]) == [7, 7]


def test_a_measurement_of_noise_leaves_the_affinity_alone() -> None:
    before = environment.os.sched_getaffinity(0)
    noise = measure_noise(min(before), seconds=0.01)
    assert environment.os.sched_getaffinity(0) == before
    assert 0 <= noise.lost <= 1
    assert noise.timer_ns > 0


def test_a_noisy_machine_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "measure_noise", lambda cpu: Noise(cpu, 0.0, 10.0, 30.0))
    assert Environment.collect([0, 1]).warnings() == []
    monkeypatch.setattr(environment, "measure_noise", lambda cpu: Noise(cpu, 0.2 * cpu, 90.0, 30.0))
    (warning,) = Environment.collect([0, 1]).warnings()
    assert warning.startswith("CPU 1 did not run the benchmark for 20.0% of the time")
    assert "one CPU" in Environment.collect([0, 0]).warnings()[0]


def test_shared_memory_without_a_name_counts() -> None:
    nbytes = 64 << 20
    before = shared_memory_used()
    descriptor = environment.os.memfd_create("shmnd-test")
    try:
        environment.os.posix_fallocate(descriptor, 0, nbytes)
        assert shared_memory_used() - before > nbytes // 2
    finally:
        environment.os.close(descriptor)
