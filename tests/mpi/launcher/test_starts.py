# SPDX-License-Identifier: Apache-2.0
"""The start of ranks: options of Python that hide the package from them, and starts that last."""

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpi.launcher.jobs import PATIENCE, launch, launch_program, python
from shmnd.mpi.launcher import start
from shmnd.mpi.launcher.environment import hidden_by
from shmnd.mpi.launcher.start import Start, shortened
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


def _line_of(terminal: int, expected: str) -> str:
    """Return the next line of that kind that the launcher writes to a terminal."""
    lines = [b""]
    while not re.search(expected, lines[-1].decode()):
        if lines[-1].endswith(b"\n"):
            lines.append(b"")
        try:
            lines[-1] += os.read(terminal, 1)
        except OSError as error:  # the launcher has ended
            raise AssertionError(lines) from error
    return lines[-1].decode().rstrip()


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
                os.close(terminal)  # so that the end of the launcher ends a read
                # Where the imports of the other ranks take long, the first lines name these, too.
                said = _line_of(mine, r"\d+ s: 1 of 3 ranks .*: 2\r?\n$")
                assert re.fullmatch(
                    r"shmnd mpiexec: \d+ s: 1 of 3 ranks have not initialized MPI yet: 2", said
                )
                until = time.monotonic() + PATIENCE
                while None in (waits := [each.waits for each in jobs.ranks(namespace)]):
                    assert time.monotonic() < until
                    time.sleep(0.01)
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


class _Terminal:
    """Of a launcher; it keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def has_terminal(self) -> bool:
        return True

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_a_launcher_that_was_stopped_writes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-Z: the lines of that time are not written one after the other."""
    now, terminal, rank = [0.0], _Terminal(), SimpleNamespace(number=0, ended=None)
    monkeypatch.setattr(start, "time", SimpleNamespace(monotonic=lambda: now[0]))
    memory: Any = SimpleNamespace(has_attached=lambda rank: False)
    processes: Any = SimpleNamespace(ranks=[rank])
    output: Any = terminal
    watch = Start(processes, memory, output)
    for seconds in (4, 5, 6, 100, 101, 102, 199, 200, 201):
        now[0] = float(seconds)
        watch.show()
    assert [line.partition(":")[0] for line in terminal.lines] == ["5 s", "100 s", "200 s"]


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
