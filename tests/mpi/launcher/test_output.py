# SPDX-License-Identifier: Apache-2.0
"""What several ranks print into one file or pipe: every line is whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from mpi.launcher.jobs import PATIENCE, launch

RANKS = 4
LINES = 3000
PRINTS = f"""
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
for k in range({LINES}):
    print(comm.rank, k, "abcdefghij" * (k * (comm.rank + 3) % 41))
"""


UNBUFFERED = "import sys; sys.stdout.reconfigure(write_through=True)\n" + PRINTS
"""As with PYTHONUNBUFFERED: each part of a line is written by itself."""


def check(text: str) -> None:
    """Check that each rank's lines are whole and in order."""
    following = [0] * RANKS
    for line in text.splitlines():
        rank, k, rest = line.split(" ")
        assert int(k) == following[int(rank)], line
        assert rest == "abcdefghij" * (int(k) * (int(rank) + 3) % 41), line
        following[int(rank)] += 1
    assert following == [LINES] * RANKS


@pytest.mark.slow
@pytest.mark.parametrize("program", [PRINTS, UNBUFFERED], ids=["buffered", "unbuffered"])
def test_lines_in_a_pipe_are_whole(program: str) -> None:
    check(launch(RANKS, "-c", program).stdout)


@pytest.mark.slow
def test_lines_in_a_file_are_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shmnd.mpi", "-n", str(RANKS), "--oversubscribe", "-c", PRINTS]
    with (tmp_path / "output").open("w") as output:
        subprocess.run(command, stdout=output, timeout=PATIENCE, check=True)
    check((tmp_path / "output").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "before", "expected"),
    [
        (2, "", True),
        (1, "", False),
        (2, "import io; sys.stdout = io.StringIO()", False),
        (2, "import os; sys.stdout = open(os.devnull, 'w')", False),
        (2, "sys.stdout.detach(); sys.stdout = None", None),
        (2, "sys.stdout.close()", False),
    ],
    ids=["several ranks", "one rank", "in memory", "of a file", "none", "closed"],
)
def test_only_the_stream_that_python_made_is_changed(
    ranks: int, before: str, expected: bool | None
) -> None:
    said = "os.write(2, f'<{getattr(sys.stdout, \"line_buffering\", None)}>'.encode())"
    ran = launch(ranks, "-c", f"import os, sys; {before}\nfrom mpi4py import MPI\n{said}")
    assert ran.stderr == f"<{expected}>" * ranks


@pytest.mark.slow
def test_what_was_printed_before_comes_first() -> None:
    ran = launch(2, "-c", "print('before')\nfrom mpi4py import MPI\nprint('after')")
    assert sorted(ran.stdout.split()) == ["after", "after", "before", "before"]


@pytest.mark.slow
def test_the_launcher_leaves_no_pipe_open() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "shmnd.mpi", "--prefix", "-n", "2"]
    ran = subprocess.run(
        [*command, "--oversubscribe", "-c", "print(1)"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert (sorted(ran.stdout.splitlines()), ran.stderr) == (["[0] 1", "[1] 1"], "")
