# SPDX-License-Identifier: Apache-2.0
"""More than one host: the real mpiexec runs the same command line."""

import importlib.util
import os
import socket
import subprocess
import sys

import pytest

from mpi.launcher.jobs import PATIENCE
from shmnd.mpi.launcher import elsewhere
from shmnd.mpi.launcher.job import main


class Became(Exception):
    """Instead of the program that the launcher becomes."""


def handed_over(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """Return the command line of the real mpiexec."""
    became: list[list[str]] = []

    def become(path: str, command: list[str], environment: dict[str, str]) -> None:
        became.append(command)
        raise Became

    monkeypatch.setattr(elsewhere, "find_mpiexec", lambda: "/opt/mpiexec")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(os, "execve", become)
    with pytest.raises(Became):
        main([*words])
    return became[0]


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["--host", "a,b", "prog"], ["-n", "2", "--host", "a,b", "prog"]),
        (["--host", "other.machine", "prog"], ["-n", "1", "--host", "other.machine", "prog"]),
        (["--host", "a:2,b", "prog"], ["-n", "3", "--host", "a,a,b", "prog"]),
        (["-n", "5", "--host", "a,b", "prog", "x"], ["-n", "5", "--host", "a,b", "prog", "x"]),
        (
            ["--host", "a,b", "--wdir", "/", "--oversubscribe", "prog"],
            ["-n", "2", "--host", "a,b", "--wdir", "/", "--oversubscribe", "prog"],
        ),
        (
            ["--host", "a,b", "-n", "1", "one", ":", "-n", "1", "two"],
            ["-n", "1", "--host", "a,b", "one", ":", "-n", "1", "two"],
        ),
    ],
)
def test_other_hosts_are_handed_over(
    words: list[str], begins: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert handed_over(monkeypatch, *words) == ["/opt/mpiexec", *begins]


def test_options_that_are_not_handed_over_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handed_over(monkeypatch, "--host", "a,b", "--prefix", "--timeout", "9", "prog")
    said = capsys.readouterr().err
    assert "a, b: handed over to /opt/mpiexec without --prefix, --timeout" in said


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", socket.gethostname()])
def test_this_host_is_not_handed_over(name: str) -> None:
    assert not elsewhere.is_wanted([name, name])


def test_without_another_mpi_the_hosts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "find_mpiexec", lambda: None)
    with pytest.raises(SystemExit, match=r"the hosts a, b need a real MPI.* no mpiexec of an MPI"):
        main(["--host", "a,b", "prog"])


def test_without_mpi4py_the_hosts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "find_mpiexec", lambda: "/opt/mpiexec")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit, match=r"the hosts a, b need a real MPI.* no mpi4py is"):
        main(["--host", "a,b", "prog"])


def _is_open_mpi() -> bool:
    found = elsewhere.find_mpiexec()
    if found is None or importlib.util.find_spec("mpi4py") is None:
        return False
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in said.stdout


@pytest.mark.skipif(not _is_open_mpi(), reason="Open MPI and mpi4py are not installed here")
def test_open_mpi_runs_this_host_under_two_names() -> None:
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.size, MPI.get_vendor()[0])"
    line = [sys.executable, "-m", "shmnd.mpi", "--oversubscribe"]
    hosts = ["--host", "localhost,127.0.0.1"]
    ran = subprocess.run(
        [*line, *hosts, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )
    assert ran.stdout == "2 Open MPI\n" * 2, ran.stderr
    assert "handed over to" in ran.stderr
