# SPDX-License-Identifier: Apache-2.0
"""A signal to the launcher ends the job, with what the ranks have started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi.launcher.jobs import PATIENCE

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
