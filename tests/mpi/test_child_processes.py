# SPDX-License-Identifier: Apache-2.0
"""Processes that a rank starts: each is a job of its own, and none of them harms the rank."""

import subprocess
import sys

import pytest

PATIENCE = 100
"""Seconds that a job may take on a machine that has other things to do."""


def launch(*command: str) -> subprocess.CompletedProcess[str]:
    """The result of a job of two ranks."""
    line = [sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", *command]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)


STARTS = """
import subprocess, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
program = '''
import os
from mpi4py import MPI
os.write(1, b"%d %d " % (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size))  # in one piece
'''
line = {line}
ran = subprocess.run(line, close_fds={close}, capture_output=True, text=True, timeout=60)
assert (ran.returncode, sorted(ran.stdout.split())) == (0, {expect}), ran
assert comm.allreduce(1) == 2
print("well")
"""
ALONE = '[sys.executable, "-c", program]'
NESTED = '[sys.executable, "-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "-c", program]'


@pytest.mark.slow
@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize(
    ("line", "expect"), [(ALONE, ["0", "1"]), (NESTED, ["0", "1", "2", "2"])], ids=["one", "job"]
)
def test_a_process_that_a_rank_starts_is_a_job_of_its_own(
    line: str, expect: list[str], close: bool
) -> None:
    ran = launch("-c", STARTS.format(line=line, close=close, expect=expect))
    assert ran.stdout.count("well") == 2, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("close", "well"), [(False, True), (True, False)])
def test_a_program_between_the_launcher_and_a_rank_passes_the_descriptor_on(
    close: bool, well: bool
) -> None:
    inner = "from mpi4py import MPI; print('size', MPI.COMM_WORLD.size)"
    outer = (
        "import subprocess, sys; "
        f"sys.exit(subprocess.call([sys.executable, '-c', {inner!r}], close_fds={close}))"
    )
    ran = launch("-c", outer)
    if well:
        assert (ran.returncode, ran.stdout.count("size 2")) == (0, 2), ran.stderr
    else:
        assert ran.returncode == 1
        assert "closed it" in ran.stderr
        assert "close_fds=False" in ran.stderr


FORKS = """
import os, signal, sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
if comm.rank == 0:
    sends = [comm.Isend(bytes([i]) * 8000, 1, 1) for i in range(200)]  # more than the lane takes
    child = os.fork()
    if child == 0:
        sys.exit(7)
    end = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended[1]) == 7 and ended[0] == child
    MPI.Request.Waitall(sends)
else:
    into = bytearray(8000)
    for i in range(200):
        comm.Recv(into, 0, 1)
        assert into == bytes([i]) * 8000, i
print("well")
"""


@pytest.mark.slow
def test_a_forked_child_that_ends_leaves_the_sends_of_its_rank_alone() -> None:
    ran = launch("-c", FORKS)
    assert (ran.returncode, ran.stdout.count("well")) == (0, 2), ran.stdout + ran.stderr
