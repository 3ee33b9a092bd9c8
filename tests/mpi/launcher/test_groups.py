# SPDX-License-Identifier: Apache-2.0
"""What ranks have started, in their process groups, ends with a job that fails, and not before."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mpi.launcher.jobs import PATIENCE, python
from shmnd.mpi.launcher.rank import Rank

SAVES = """
import os, signal, sys, time
from shmnd.mpi import MPI
comm = MPI.COMM_WORLD

def save(*_):
    time.sleep(0.3)
    os.write(1, b"saved\\n")
    os._exit(0)

signal.signal(signal.SIGTERM, save)
comm.Barrier()
os.write(1, b"ready\\n")
while True:
    time.sleep(0.01)
"""

STARTS = """
import os, pathlib, signal, subprocess, sys
from shmnd.mpi import MPI
comm = MPI.COMM_WORLD
if comm.rank == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pathlib.Path(sys.argv[1]).write_text(str(child.pid))
comm.Barrier()
"""
"""A rank starts a program that ignores SIGTERM."""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_program_under_a_shell_has_the_time_to_end_after_a_signal(ranks: int) -> None:
    """The shell ends at once, and its program makes a checkpoint."""
    script = ["bash", "-c", '"$0" -c "$1"; true', sys.executable, SAVES]
    line = [sys.executable, "-m", "shmnd.mpi", "-n", str(ranks), "--oversubscribe", *script]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        try:
            assert [launcher.stdout.readline() for _ in range(ranks)] == ["ready\n"] * ranks
            launcher.send_signal(signal.SIGTERM)
            assert launcher.stdout.read() == "saved\n" * ranks
            assert launcher.wait(PATIENCE) == 128 + signal.SIGTERM
        finally:
            launcher.kill()


@pytest.fixture
def child_file(tmp_path: Path) -> Iterator[Path]:
    """Where a job writes the process that a rank of it starts. It is ended after the test."""
    file = tmp_path / "child"
    yield file
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(file.read_text())).kill()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_child_that_ignores_signals_ends_with_a_job_that_fails(
    rank: int, child_file: Path
) -> None:
    ends = f"comm.rank == {rank} and os.kill(os.getpid(), signal.SIGKILL); comm.Barrier()"
    options = ["-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", STARTS + ends]
    python(*options, str(child_file), expect=128 + signal.SIGKILL)
    child = int(child_file.read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(child).wait(10) is None


@pytest.mark.parametrize("closes", ["", ", close_fds=False"])
def test_a_child_stays_after_a_job_that_succeeds(closes: str, child_file: Path) -> None:
    """Also where it has the descriptors of the rank."""
    starts = STARTS.replace("stderr=subprocess.DEVNULL", f"stderr=subprocess.DEVNULL{closes}")
    options = ["-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", starts]
    python(*options, str(child_file))
    assert psutil.Process(int(child_file.read_text())).status() != psutil.STATUS_ZOMBIE


def test_children_of_ranks_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    """Also a program under a shell, and what that starts; a rank has none that is not a child."""
    program = (
        "import os, pathlib, subprocess, sys, time\n"
        "from shmnd.mpi import MPI\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "file = pathlib.Path(sys.argv[1], f'children of {MPI.COMM_WORLD.rank}')\n"
        "file.write_text(f'{child.pid} {os.getpid()}')\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "print('ready', flush=True)\n"
        "time.sleep(300)\n"
    )
    script = ["bash", "-c", '"$0" -c "$1" "$2"; true', sys.executable, program, str(tmp_path)]
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", *script]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        try:
            assert [launcher.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
            texts = [file.read_text() for file in tmp_path.iterdir()]
            processes = [psutil.Process(int(each)) for text in texts for each in text.split()]
        finally:
            launcher.kill()
    left = psutil.wait_procs(processes, 5)[1]
    for process in left:
        process.kill()
    assert not left


def test_a_rank_of_another_user_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        rank = Rank(0, process, group=True)
        monkeypatch.setattr(os, "killpg", refuse)
        rank.send(signal.SIGTERM)
        assert rank.runs()
        rank.ended = 0.0
        assert not rank.has_descendants()
        os.close(rank.descriptor)
