# SPDX-License-Identifier: Apache-2.0
"""More than one host: the real mpiexec runs the same command line."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mpi.launcher.jobs import PATIENCE
from shmnd.mpi.launcher.hosts import elsewhere
from shmnd.mpi.launcher.hosts.allocation import MOST, allocated_hosts, is_elsewhere
from shmnd.mpi.launcher.job import main
from shmnd.mpi.launcher.options import parse


class Became(Exception):
    """Instead of the program that the launcher becomes."""


def handed_over(
    monkeypatch: pytest.MonkeyPatch, *words: str, mpiexec: str = "/opt/mpiexec"
) -> list[str]:
    """Return the command line of the real mpiexec."""
    became: list[list[str]] = []

    def become(path: str, command: list[str], environment: dict[str, str]) -> None:
        became.append(command)
        raise Became

    monkeypatch.setattr(elsewhere, "find_mpiexec", lambda: mpiexec)
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


def test_a_list_and_a_file_of_hosts_are_handed_over_as_one_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text("b slots=2\n")
    words = ["--hostfile", str(tmp_path / "hosts")]
    assert handed_over(monkeypatch, *words, "prog")[1:] == ["-n", "2", *words, "prog"]
    became = handed_over(monkeypatch, "--host", "a", *words, "prog")
    assert became[1:] == ["-n", "3", "--host", "a,b,b", "prog"]


@pytest.mark.parametrize(
    ("version", "options"),
    [
        ("mpiexec (Open MPI) 5.0.11", ["-x", "A=1 2", "-x", "B="]),
        ("mpiexec (OpenRTE) 4.1.6", ["-x", "A=1 2", "-x", "B="]),
        ("HYDRA build details:", []),
    ],
)
def test_variables_reach_the_ranks_of_other_hosts(
    version: str, options: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Open MPI takes those along that it is given by name; MPICH takes all."""
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(f"#!/bin/sh\nread line || echo '{version}'\n")  # not the ranks' input
    mpiexec.chmod(0o755)
    line = ["--host", "a,b", "-x", "A=1 2", "-x", "B=", "prog"]
    own, other = os.pipe()
    os.write(other, b"a line for rank 0\n")
    kept = os.dup(0)
    os.dup2(own, 0)
    try:
        became = handed_over(monkeypatch, *line, mpiexec=str(mpiexec))
    finally:
        os.dup2(kept, 0)
        for each in (own, other, kept):
            os.close(each)
    assert became[1:] == ["-n", "2", "--host", "a,b", *options, "prog"]


def test_options_that_are_not_handed_over_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handed_over(monkeypatch, "--host", "a,b", "--prefix", "--timeout", "9", "prog")
    said = capsys.readouterr().err
    assert "a, b: handed over to /opt/mpiexec without --prefix, --timeout" in said


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", socket.gethostname()])
def test_this_host_is_not_handed_over(name: str) -> None:
    assert not is_elsewhere([name, name])


def test_two_names_of_this_host_are_one_host_for_a_batch_system() -> None:
    """A user may name both for two hosts, as by `--host localhost,127.0.0.1`."""
    own = socket.gethostname()
    for names in ([own, "localhost"], [own, f"{own}.cluster"]):
        assert not is_elsewhere(names, allocated=True)
        assert is_elsewhere(names)
    assert is_elsewhere([own, "another"], allocated=True)


def test_a_job_of_this_host_has_one_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--host", "localhost:2", "one", ":", "two"])
    assert "a job has one program: the parts after a : cannot be started" in capsys.readouterr().err


SLURM = "rack[1-2]n[08-09,12],x"
SLURM_HOSTS = ["rack1n08", "rack1n09", "rack1n12", "rack2n08", "rack2n09", "rack2n12", "x"]


@pytest.mark.parametrize(
    ("variables", "hosts"),
    [
        ({}, []),
        ({"SLURM_JOB_NODELIST": SLURM}, SLURM_HOSTS),
        ({"SLURM_JOB_NODELIST": "n[1-2],m", "SLURM_TASKS_PER_NODE": "2(x2),1"}, "n1 n1 n2 n2 m"),
        ({"SLURM_JOB_NODELIST": "m", "SLURM_TASKS_PER_NODE": "3"}, "m m m"),
        ({"LSB_MCPU_HOSTS": "a 2 b 1 c 0"}, "a a b"),
        ({"PBS_NODEFILE": "a\na\nb\n"}, "a a b"),
        ({"PE_HOSTFILE": "a 2 all.q@a UNDEFINED\nb 1 all.q@b UNDEFINED\n"}, "a a b"),
    ],
)
def test_a_batch_system_names_the_hosts(
    variables: dict[str, str], hosts: list[str] | str, tmp_path: Path
) -> None:
    for name, text in variables.items():
        if name.endswith("FILE"):
            (tmp_path / name).write_text(text)
            variables = {name: str(tmp_path / name)}
    assert allocated_hosts(variables) == (hosts.split() if isinstance(hosts, str) else hosts)


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_JOB_NODELIST": "n[1"},
        {"SLURM_JOB_NODELIST": "n[1-x]"},
        {"SLURM_JOB_NODELIST": "n[3-1]"},
        {"SLURM_JOB_NODELIST": "]n["},
        {"SLURM_JOB_NODELIST": ","},
        {"LSB_MCPU_HOSTS": "a 2 b"},
        {"LSB_MCPU_HOSTS": "a -3"},
        {"LSB_MCPU_HOSTS": "a 1_0"},
        {"LSB_MCPU_HOSTS": "a 0 b 0"},
        {"PBS_NODEFILE": os.devnull},
        {"PBS_NODEFILE": "/nowhere"},
        {"PE_HOSTFILE": "/nowhere"},
    ],
)
def test_an_allocation_that_cannot_be_read_leaves_the_ranks_here(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ((name, value),) = variables.items()
    monkeypatch.setenv(name, value)
    options = parse(["-n", "2", "prog"], "shmnd mpiexec")
    assert options.note.startswith(f"{name}={value}")
    assert options.note.endswith(" cannot be read: the ranks run on this host")
    assert not options.hosts
    assert not options.allocated


@pytest.mark.parametrize("tasks", ["1(x2)", "2", "1(x4)", "many", "0(x3)"])
def test_hosts_whose_slots_cannot_be_read_have_one_each(
    tasks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)
    assert handed_over(monkeypatch, "prog")[1:] == ["-n", "3", "prog"]
    note = f"SLURM_TASKS_PER_NODE={tasks} cannot be read: each host counts as one slot"
    assert f"shmnd mpiexec: {note}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "variables",
    [
        {"LSB_MCPU_HOSTS": "a 300000000000"},
        {"SLURM_JOB_NODELIST": "n[0-300000000000]"},
        {"SLURM_JOB_NODELIST": "n", "SLURM_TASKS_PER_NODE": "300000000000"},
        {"SLURM_JOB_NODELIST": "n[0-9999]", "SLURM_TASKS_PER_NODE": "1(x10000)"},
    ],
)
def test_an_allocation_may_be_larger_than_a_job(
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its hosts and slots are not counted to the end."""
    assert len(allocated_hosts(variables)) == MOST + 1
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        parse(["prog"], "shmnd mpiexec")
    assert f"more slots than the {MOST} ranks" in capsys.readouterr().err
    assert handed_over(monkeypatch, "-n", "3", "prog")[1:] == ["-n", "3", "prog"]


@pytest.mark.parametrize("words", [[], ["--host", "a,b"]])
def test_a_standard_error_that_takes_nothing_does_not_end_the_job(words: list[str]) -> None:
    """The launcher writes a line about the hosts; another mpiexec is in the place of a real one."""
    program = "from shmnd.mpi.launcher.hosts import elsewhere\n"
    program += "elsewhere.find_mpiexec = lambda: '/bin/echo'\n"
    program += "elsewhere.importlib.util.find_spec = lambda name: name\n"
    program += "import sys\nfrom shmnd.mpi.launcher.job import main\nsys.exit(main(sys.argv[1:]))"
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", program, *words, "-n", "1", "/bin/echo", "it", "ran"],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
            timeout=PATIENCE,
            env={**os.environ, "LSB_MCPU_HOSTS": "x"},
        )
    assert ran.returncode == 0
    assert ran.stdout.rstrip().endswith("it ran")


def test_an_allocation_of_several_hosts_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real mpiexec reads the same variables."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x2)")
    assert handed_over(monkeypatch, "prog") == ["/opt/mpiexec", "-n", "4", "prog"]
    assert handed_over(monkeypatch, "-n", "3", "prog")[1:] == ["-n", "3", "prog"]


def test_hosts_of_the_command_line_come_before_those_of_an_allocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    options = parse(["--host", "localhost:3", "prog"], "shmnd mpiexec")
    assert options.ranks == 3
    assert not is_elsewhere(options.hosts)
    assert handed_over(monkeypatch, "--host", "a,b", "prog")[3:] == ["--host", "a,b", "prog"]


def test_an_allocation_of_this_host_has_as_many_ranks_as_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for node, host in (("name-in-slurm", "name-in-slurm"), ("", f"{socket.gethostname()}.cluster")):
        monkeypatch.setenv("SLURMD_NODENAME", node)
        monkeypatch.setenv("SLURM_JOB_NODELIST", host)
        monkeypatch.setenv("SLURM_TASKS_PER_NODE", "3")
        options = parse(["prog"], "shmnd mpiexec")
        assert options.ranks == 3
        assert not is_elsewhere(options.hosts)


def test_without_another_mpi_the_hosts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "find_mpiexec", lambda: None)
    with pytest.raises(SystemExit, match=r"the hosts a, b need a real MPI.* no mpiexec of an MPI"):
        main(["--host", "a,b", "prog"])


def test_a_refusal_of_hosts_that_the_user_has_not_named_says_where_they_come_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elsewhere, "find_mpiexec", lambda: None)
    monkeypatch.setenv("LSB_MCPU_HOSTS", "a 1 b 1")
    words = r"the batch system has given them: --host localhost:3 keeps 3 ranks here$"
    with pytest.raises(SystemExit, match=words):
        main(["-n", "3", "prog"])
    with pytest.raises(SystemExit, match=r"openmpi$"):
        main(["--host", "a,b", "prog"])


def test_hosts_that_a_file_does_not_name_are_not_those_of_an_allocation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LSB_MCPU_HOSTS", "a 1 b 1")
    (tmp_path / "hosts").write_text("# none\n")
    for words in (["--hostfile", str(tmp_path / "hosts")], ["--host", "a:0"], ["--host", ","]):
        with pytest.raises(SystemExit, match="2"):
            parse(["-n", "2", *words, "prog"], "shmnd mpiexec")
        assert f"{' '.join(words)}: names no host with a slot\n" in capsys.readouterr().err


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
