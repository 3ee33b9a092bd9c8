# SPDX-License-Identifier: Apache-2.0
"""Too little memory: errors that name the call, the limit and the remedy, and the job continues."""

import re

import pytest

from mpi.launcher.jobs import launch, python

MESSAGES = """
import resource, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
large = bytes(60 << 20)
pages = int(open("/proc/self/statm").read().split()[0])
free = resource.getrlimit(resource.RLIMIT_AS)
if rank:
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (30 << 20), free[1]))
for name, call in {
    "bcast": lambda: comm.bcast(None if rank else large),
    "scatter": lambda: comm.scatter(None if rank else [large, large]),
    "recv": lambda: comm.recv(source=0) if rank else comm.send(large, 1),
}.items():
    try:
        call()
        assert rank == 0, name
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_NO_MEM, error
        text = str(error)
        assert f"Comm.{name} of MPI_COMM_WORLD: no memory for a message with rank 0" in text, text
        assert "(ulimit -v)" in text, text
        print(name)
    assert comm.sendrecv(rank, 1 - rank, source=1 - rank) == 1 - rank
"""


def test_a_message_for_which_a_rank_has_no_memory() -> None:
    assert launch(2, "-c", MESSAGES).stdout == "bcast\nscatter\nrecv\n"


def test_a_window_for_which_there_is_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", "100M")
    program = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
for make in MPI.Win.Allocate, MPI.Win.Allocate_shared:
    try:
        make(1 << 28 if comm.rank else 8, comm=comm)
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_NO_MEM, error
        assert "rank 0 has no memory for it" in str(error), error
        assert "SHMND_MEMORY_LIMIT" in str(error), error
        print("well")
MPI.Win.Allocate(8, comm=comm).Free()
"""
    options = ["-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "--private-arrays", "-c", program]
    assert python(*options).stdout == "well\n" * 4


def test_a_job_that_is_larger_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHMND_MEMORY_LIMIT", "100K")
    ran = python("-m", "shmnd.mpi", "-n", "2", "--oversubscribe", "true", expect=1)
    line = re.fullmatch(
        r"shmnd mpiexec: (.*; free some, or raise SHMND_MEMORY_LIMIT .*)\n", ran.stderr
    )
    assert line is not None, ran
    assert "mpiexec" not in line[1], ran
