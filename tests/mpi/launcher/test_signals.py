# SPDX-License-Identifier: Apache-2.0
"""A signal to the launcher ends the job, with what the ranks have started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpi.launcher.jobs import PATIENCE
from shmnd.mpi.launcher.job import Job
from shmnd.mpi.launcher.options import parse

STARTS = """
import subprocess, time
from shmnd.mpi import MPI
child = subprocess.Popen(["sleep", "300"])
children = MPI.COMM_WORLD.gather(child.pid)
if children:
    print(*children, flush=True)
MPI.COMM_WORLD.Barrier()
time.sleep(300)
"""


def _lives(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def hangups() -> Iterator[None]:
    """Have programs started with hangups as a terminal does: a suite under nohup ignores them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_job_ends_with_what_its_ranks_have_started(how: signal.Signals) -> None:
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", STARTS]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        children = [int(each) for each in launcher.stdout.readline().split()]
        try:
            launcher.send_signal(how)
            assert launcher.wait(PATIENCE) == 128 + how
            until = time.monotonic() + PATIENCE
            while any(map(_lives, children)) and time.monotonic() < until:
                time.sleep(0.01)
            assert len(children) == 2
            assert not any(map(_lives, children))
        finally:
            launcher.kill()
            for each in filter(_lives, children):
                os.kill(each, signal.SIGKILL)


def test_a_hangup_that_is_ignored_stays_so() -> None:
    """The job of a program under nohup."""
    program = "import os, signal; os.kill(int(os.environ['SHMND_MPI_LAUNCHER']), signal.SIGHUP)"
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "1", "-c", program]
    ran = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *line], timeout=PATIENCE, check=False
    )
    assert ran.returncode == 0


SLEEPS = ["-n", "3", "--oversubscribe", "-c", "import time; time.sleep(60)"]


def test_a_signal_between_two_starts_ends_the_job() -> None:
    class Early(Job):
        def _start_rank(self, number: int, descriptor: int) -> None:
            super()._start_rank(number, descriptor)
            signal.raise_signal(signal.SIGINT)

    job = Early(parse(SLEEPS, "mpiexec"))
    assert job.run() == 130
    assert len(job._ranks) == 1


def test_a_rank_that_starts_while_a_signal_comes_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher does not know of it yet; it would be left to the SIGKILL behind the grace."""

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("shmnd.mpi.launcher.job.subprocess.Popen", Popen)
    job = Job(parse(SLEEPS, "mpiexec"))
    assert job.run() == 128 + signal.SIGTERM
    assert [rank.process.returncode for rank in job._ranks] == [-signal.SIGTERM]
