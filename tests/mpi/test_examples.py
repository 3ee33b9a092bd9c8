# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/examples/mpi, unmodified: each checks its own results."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PATIENCE: Final = 200
"""Seconds that a program may take on a machine that has other things to do."""
EXAMPLES: Final = sorted((Path(__file__).parents[2] / "docs" / "examples" / "mpi").glob("*.py"))


def line_of(program: Path, ranks: int | None = None) -> list[str]:
    """The command that starts a program as its comments say."""
    lines = program.read_text().splitlines()
    wanted = dict(line[2:].split(": ") for line in lines if line.startswith(("# ranks", "# mod")))
    module = ["-m", wanted["module"]] if "module" in wanted else []
    count = str(ranks or wanted["ranks"])
    line = [sys.executable, "-m", "shmnd.mpi", "-n", count, "--oversubscribe"]
    return [*line, "--timeout", str(PATIENCE - 10), *module, str(program)]


def run(program: Path, ranks: int | None = None) -> str:
    """What a program prints."""
    line = line_of(program, ranks)
    ran = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("program", EXAMPLES, ids=lambda program: program.stem)
def test_an_example_finds_its_expected_results(program: Path) -> None:
    assert len(run(program).splitlines()) == 1, "rank 0 says how it went, in one line"


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [1, 2, 5, 7])
@pytest.mark.parametrize("program", EXAMPLES, ids=lambda program: program.stem)
def test_an_example_runs_with_any_number_of_ranks(program: Path, ranks: int) -> None:
    if ranks == 1 and program.stem in ("farm", "pool", "objects"):
        pytest.skip("it needs a second rank")
    run(program, ranks)


@pytest.mark.slow
def test_the_programs_of_the_tutorial_run_with_several_ranks() -> None:
    page = Path(__file__).parents[2] / "docs" / "tutorial_mpi.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.S | re.M)
    assert len(blocks) >= 4
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "4", "--oversubscribe", "--prefix"]
    line += ["--timeout", str(PATIENCE - 10), "-c", "\n".join(blocks)]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "[0] pi is about 3.141592654" in ran.stdout


COMPUTES: Final = """
import sys, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
for n in (8, 8000, 9000, 300_000, 3_000_000):
    arrived = Path(sys.argv[1], str(n))
    comm.Barrier()
    if comm.rank == 0:
        data = np.zeros(n, dtype="u1")
        comm.Recv(data, 1)
        assert (data == np.arange(n) % 251).all()
        arrived.touch()
    else:
        request = comm.Isend((np.arange(n) % 251).astype("u1"), 0)
        end = time.monotonic() + 60
        while not arrived.exists():  # no call of MPI
            assert time.monotonic() < end, f"{n} bytes needed a call of their sender"
        request.Wait()
"""


@pytest.mark.slow
def test_a_message_needs_no_further_call_of_its_sender(tmp_path: Path) -> None:
    program = tmp_path / "computes.py"
    program.write_text(COMPUTES)
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe"]
    line += ["--timeout", str(PATIENCE - 10), str(program), str(tmp_path)]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


HUGE: Final = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
n = (1 << 31) + 4097
if comm.rank == 0:
    data = np.empty(n, dtype="u1")
    data[:] = 7
    data[::1 << 20] = np.arange(data[::1 << 20].size) % 251
    comm.Send(data, 1, 3)
elif comm.rank == 1:
    data = np.zeros(n, dtype="u1")
    status = MPI.Status()
    comm.Recv(data, 0, 3, status)
    assert status.Get_count(MPI.BYTE) == n
    marks = data[::1 << 20]
    assert (marks == np.arange(marks.size) % 251).all()
    assert data[-1] == 7
    print("whole")
"""


@pytest.mark.soak
def test_a_message_of_more_than_two_gibibytes_comes_whole() -> None:
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", HUGE]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.stdout == "whole\n", ran.stdout + ran.stderr
