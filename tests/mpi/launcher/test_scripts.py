# SPDX-License-Identifier: Apache-2.0
"""Scripts of a shell as ranks: which of their programs is the rank."""

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mpi.launcher.jobs import PATIENCE, launch

ASKS = "from mpi4py import MPI; assert MPI.COMM_WORLD.size == 2"
TALKS = """
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
for k in range(3):
    mine = sys.argv[1], k
    assert comm.sendrecv(mine, dest=1 - comm.rank, source=1 - comm.rank) == mine
    assert comm.allgather(mine) == [mine, mine]
print(sys.argv[1])
"""
ENDS = f"import os; {ASKS}; os._exit(0)"
BECOMES = "import os, sys\n{}\nos.execv(sys.executable, [sys.executable, sys.argv[1], 'b'])"
BARRIER = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"
SENDS = "from mpi4py import MPI; c = MPI.COMM_WORLD; c.send(1, 1) if c.rank == 0 else c.recv()"


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    """The interpreter and a program, for scripts."""
    program = tmp_path / "program.py"
    program.write_text(TALKS)
    return [sys.executable, str(program)]


def test_a_program_may_follow_one_that_did_not_communicate(parts: list[str]) -> None:
    script = '"$0" -c "$2" && "$0" -c "$2" && "$0" "$1" b'
    assert launch(2, "sh", "-c", script, *parts, ASKS).stdout == "b\n" * 2


@pytest.mark.slow
@pytest.mark.parametrize("first", [TALKS, BARRIER, SENDS, ENDS])
def test_a_program_after_another_one_is_refused(parts: list[str], first: str) -> None:
    """It would read messages of the first one again."""
    ran = launch(2, "sh", "-c", '"$0" -c "$2" a; "$0" "$1" b', *parts, first, expect=1)
    assert "is rank" in ran.stderr
    assert "of this job, or was it; a script that `shmnd mpiexec` starts" in ran.stderr
    assert "b\n" not in ran.stdout


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_under_a_shell_end_with_the_launcher(how: signal.Signals, tmp_path: Path) -> None:
    """The shell waits for its program, and passes no signal on."""
    program = (
        "import os, sys; from mpi4py import MPI; comm = MPI.COMM_WORLD\n"
        "open(f'{sys.argv[1]}/{comm.rank}', 'w').write(f'{os.getpid()}\\n'); comm.recv()"
    )
    command = ["sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, program, str(tmp_path)]
    launcher = subprocess.Popen([sys.executable, "-m", "shmnd.mpi", "-n", "2", *command])
    ranks: list[psutil.Process] = []
    try:
        end = time.monotonic() + PATIENCE
        while len(ranks) < 2:
            assert time.monotonic() < end
            written = [file.read_text() for file in tmp_path.iterdir()]
            ranks = [psutil.Process(int(text)) for text in written if text.endswith("\n")]
        launcher.send_signal(how)
        launcher.wait(PATIENCE)
        assert not psutil.wait_procs(ranks, PATIENCE)[1]
    finally:
        launcher.kill()
        launcher.wait()
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.kill()


@pytest.mark.parametrize("first", [BARRIER, ASKS])
def test_a_program_in_place_of_another_one_is_refused(parts: list[str], first: str) -> None:
    """Whatever that did: it is not finalized, and a message may have come for it."""
    becomes = BECOMES.format(first)
    ran = launch(2, "sh", "-c", 'exec "$0" -c "$2" "$1"', *parts, becomes, expect=1)
    assert "of this job, or was it" in ran.stderr


def test_two_programs_at_once_are_refused(parts: list[str]) -> None:
    further = f"{ASKS}; import subprocess, os; names = dict(os.environ)\n" + (
        "names.pop('SHMND_MPI_PROCESS')\n"
        "line = [sys.executable, '-c', 'import mpi4py.MPI']\n"
        "ran = subprocess.run(line, env=names, close_fds=False, stderr=subprocess.PIPE)\n"
        "print(b'of this job, or was it' in ran.stderr)"
    )
    assert launch(2, *parts[:1], "-c", f"import sys; {further}").stdout == "True\n" * 2
