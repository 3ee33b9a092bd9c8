# SPDX-License-Identifier: Apache-2.0
"""The start of ranks: options of Python that hide the package from them, and starts that last."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpi.launcher.jobs import PATIENCE, launch, launch_program, python
from shmnd.mpi.launcher.environment import hidden_by
from shmnd.mpi.launcher.start import shortened
from shmnd_tools.observe import jobs


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("python -I program.py", "-I"),
        ("/usr/bin/python3.11 -uE program.py", "-E"),
        ("python3 -X dev -Werror -W ignore -sI -c code", "-I"),
        ("python3 --check-hash-based-pycs always -E -m module", "-E"),
        ("python program.py -I", ""),
        ("python -m module -E", ""),
        ("python -mE -I", ""),
        ("python -c -I", ""),
        ("python -X -I program.py", ""),
        ("python -XI program.py", ""),
        ("python - -I", ""),
        ("python -- -I", ""),
        ("python", ""),
        ("program -I", ""),
    ],
)
def test_an_option_that_hides_the_package_is_found(line: str, option: str) -> None:
    assert hidden_by(line.split()) == option


@pytest.mark.slow
def test_the_launcher_names_it() -> None:
    assert "PYTHONPATH" not in launch(1, sys.executable, "-c", "").stderr
    said = launch(1, sys.executable, "-I", "-c", "").stderr
    assert " -I ignores PYTHONPATH" in said


LATE = """
import os, sys, time
while os.environ["PMI_RANK"] == "2" and not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
"""


def _line_of(terminal: int) -> str:
    """Return the next line that the launcher writes to a terminal."""
    text = b""
    while not text.endswith(b"\n"):
        text += os.read(terminal, 1)
    return text.decode().rstrip()


def test_a_start_that_takes_long_shows_on_a_terminal_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does a list of the ranks, which has all of them from the start on."""
    namespace, go = f"start-{os.getpid()}", tmp_path / "go"
    monkeypatch.setenv("SHMND_NAMESPACE", namespace)
    mine, terminal = pty.openpty()
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "3", "--oversubscribe", "--timeout", "90"]
    try:
        with subprocess.Popen([*line, "-c", LATE, str(go)], stderr=terminal) as launcher:
            try:
                assert _line_of(mine) == (
                    "shmnd mpiexec: 5 s: 1 of 3 ranks have not initialized MPI yet: 2"
                )
                until = time.monotonic() + PATIENCE
                while None in (waits := [each.waits for each in jobs.ranks(namespace)]):
                    assert time.monotonic() < until
                assert [str(each).partition(" (")[0] for each in waits] == [
                    "Barrier of MPI_COMM_WORLD for rank 2",
                    "Barrier of MPI_COMM_WORLD for rank 2",
                    "has not initialized MPI",
                ]
                go.touch()
                assert launcher.wait(PATIENCE) == 0
            finally:
                launcher.kill()
    finally:
        os.close(mine)
        os.close(terminal)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([3], "3"),
        ([0, 1], "0-1"),
        ([0, 2, 3, 4, 9], "0, 2-4, 9"),
        (list(range(0, 40, 2)), "0, 2, 4, 6, 8, 10, 12, 14, ..."),
    ],
)
def test_many_ranks_are_named_by_the_first_and_the_last_of_a_row(
    numbers: list[int], text: str
) -> None:
    assert shortened(numbers) == text


def test_ranks_are_bound_to_a_core_each_where_there_are_enough() -> None:
    """Those of `--bind-to none`, and more ranks than cores, are not."""
    cores = sorted(os.sched_getaffinity(0))
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    line = ["-m", "shmnd.mpi", "-n"]
    bound = python(*line, str(len(cores)), "-c", program).stdout
    assert sorted(bound.splitlines()) == sorted(str([core]) for core in cores)
    for options in ([str(len(cores) + 1), "--oversubscribe"], ["1", "--bind-to", "none"]):
        free = python(*line, *options, "-c", program).stdout
        assert set(free.splitlines()) == {str(cores)}


def test_rank_0_alone_has_the_standard_input_of_the_launcher() -> None:
    program = "import sys; from mpi4py import MPI; print(MPI.COMM_WORLD.rank, sys.stdin.read())"
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "3", "--oversubscribe", "-c", program]
    ran = subprocess.run(
        line, input="words", capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert sorted(ran.stdout.splitlines()) == ["0 words", "1 ", "2 "]


def test_the_library_names_itself() -> None:
    program = "from mpi4py import MPI; print(MPI.Get_library_version(), MPI.get_vendor()[0])"
    said = launch(1, "-c", program).stdout
    assert said.startswith("shmnd ")
    assert said.endswith(" shmnd\n")


@pytest.mark.slow
def test_the_rings_of_64_ranks_take_at_most_200_mib() -> None:
    """Each of them has sent a message to each, and received it."""
    program = """
import os
from mpi4py import MPI
comm = MPI.COMM_WORLD
receives = [comm.Irecv(bytearray(8), rank) for rank in range(comm.size)]
for rank in range(comm.size):
    comm.Send(b"8 letter", rank)
MPI.Request.Waitall(receives)
comm.Barrier()
if comm.rank == 0:
    print(os.fstat(int(os.environ["SHMND_MPI_JOB"])).st_blocks * 512 >> 20)
comm.Barrier()
"""
    assert int(launch_program(64, program).stdout) <= 200
