# SPDX-License-Identifier: Apache-2.0
"""A job that `--timeout` ends shows what its ranks did: no error tells of a deadlock."""

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
import os, signal
from mpi4py import MPI

comm = MPI.COMM_WORLD
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
elif comm.rank == 2:
    comm.send(os.getpid(), 0)
    comm.recv(source=1)
else:
    process = comm.recv(source=2)
    until_waits(2, "recv")
    os.kill(process, signal.SIGSTOP)
    comm.recv(source=1)
"""


def test_the_limit_names_ranks_that_are_stopped() -> None:
    said = launch(3, "--timeout", "6", "-c", UNTIL_WAITS + STOPS, expect=124).stderr.splitlines()
    waits = [line.removeprefix("shmnd mpiexec: ") for line in said[1:]]
    assert waits[0].startswith("rank 0 waited in recv of MPI_COMM_WORLD for rank 1 (")
    assert waits[0].endswith(" s)")
    assert waits[1] == "rank 1 is stopped"
    assert waits[2].startswith("rank 2 waited in recv of MPI_COMM_WORLD for rank 1 (")
    assert waits[2].endswith(" s), and is stopped")
