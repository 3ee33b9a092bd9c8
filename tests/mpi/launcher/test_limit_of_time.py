# SPDX-License-Identifier: Apache-2.0
"""A job that `--timeout` ends shows what its ranks did: no error tells of a deadlock."""

import sys
from pathlib import Path

import pytest

from mpi.launcher.jobs import UNTIL_WAITS, launch

DEADLOCK = """
from mpi4py import MPI

comm = MPI.COMM_WORLD
second = comm.Dup()
second.name = "second"
comm.Barrier()
if comm.rank == 0:
    comm.Barrier()
elif comm.rank == 1:
    second.Barrier()
else:
    while True:
        pass
"""


def test_the_limit_names_the_call_each_rank_waited_in() -> None:
    said = launch(3, "--timeout", "6", "-c", DEADLOCK, expect=124).stderr.splitlines()
    first, *waits = [line.removeprefix("shmnd mpiexec: ") for line in said]
    assert first == "the job has run for 6.0 seconds, the limit of --timeout"
    assert waits[0].startswith("rank 0 waited in Barrier of MPI_COMM_WORLD for rank ")
    assert waits[1].startswith("rank 1 waited in Barrier of second for rank ")
    assert waits[2:] == ["rank 2 did not wait"]


STOPS = """
import os, signal, time
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank:
    comm.send(os.getpid(), 0)
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
elif comm.rank == 2:
    comm.recv(source=1, tag=1)
else:
    both = [comm.recv(source=rank) for rank in (1, 2)]
    until_waits(2, "recv")
    os.kill(both[1], signal.SIGSTOP)
    while not all(") T " in open(f"/proc/{process}/stat").read() for process in both):
        time.sleep(0.001)
    os._exit(3)
"""


@pytest.mark.parametrize("shell", [False, True], ids=["", "under a shell"])
def test_ranks_that_are_stopped_are_named(shell: bool, tmp_path: Path) -> None:
    program = tmp_path / "stops.py"
    program.write_text(UNTIL_WAITS + STOPS)
    command = ["sh", "-c", f"{sys.executable} {program}; exit $?"] if shell else [str(program)]
    said = launch(3, *command, expect=3).stderr.splitlines()
    waits = [line.removeprefix("shmnd mpiexec: ") for line in said[1:]]
    assert waits[0] == "rank 1 is stopped"
    assert waits[1].startswith("rank 2 waited in recv of MPI_COMM_WORLD for rank 1, tag 1 (")
    assert waits[1].endswith(" s), and is stopped")
