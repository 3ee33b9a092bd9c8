# SPDX-License-Identifier: Apache-2.0
"""Communicators made and freed in great numbers: no memory is left, and no number comes twice."""

import resource
from pathlib import Path

from mpi.launcher.jobs import launch
from shmnd.mpi import MPI


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_communicator_that_is_freed_leaves_no_memory() -> None:
    """Its queues of messages stayed: 130 bytes or more, which later look-ups passed by."""

    def make(times: int) -> None:
        for _ in range(times):
            comm = MPI.COMM_SELF.Dup()
            request = comm.Isend(b"abc", 0)
            comm.Recv(bytearray(3), 0)
            request.Wait()
            comm.Free()

    make(1000)
    before = _resident()
    make(20_000)
    assert _resident() - before < 1 << 20


REVOKED = """
import resource
from pathlib import Path
from mpi4py import MPI
world = MPI.COMM_WORLD
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
def make(times):
    for _ in range(times):
        comm = world.Dup()
        if world.rank == 0:
            comm.Revoke()
        comm.Free()
        world.Barrier()
make(1000)
before = resident()
make(10_000)
assert resident() - before < 1 << 19, resident() - before
comm = world.Dup()
comm.Revoke()
request = world.Irecv(bytearray(3), 1 - world.rank)
try:
    comm.Barrier()
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_REVOKED
else:
    raise AssertionError("no error")
world.Send(b"abc", 1 - world.rank)
request.Wait()
print("well")
"""


def test_a_communicator_that_is_revoked_and_freed_leaves_next_to_no_memory() -> None:
    """Its four contexts stayed. Here the news of half of them comes after the rank has freed it."""
    assert launch(2, "-c", REVOKED).stdout == "well\n" * 2


def test_messages_of_a_communicator_that_is_dropped_arrive() -> None:
    comm, came = MPI.COMM_SELF.Dup(), bytearray(3)
    receive = comm.Irecv(came, 0)
    send = comm.Isend(b"abc", 0)
    comm.Free()
    MPI.Request.Waitall([receive, send])
    assert came == b"abc"


def test_a_job_that_has_used_all_numbers_of_communicators() -> None:
    """The next ones would have been those of the first communicators, whose messages they took."""
    program = """
import mmap, os, struct
from mpi4py import MPI
comm = MPI.COMM_WORLD
memory = mmap.mmap(int(os.environ["SHMND_MPI_JOB"]), 0)
(used,) = struct.unpack_from("I", memory, 256)
assert 16 <= used < 64, used
comm.Barrier()
if comm.rank == 0:
    struct.pack_into("I", memory, 256, 0xff000000 - 64)
comm.Barrier()
made = 0
window = lambda: MPI.Win.Allocate(8, comm=comm)
for call in (comm.Dup, lambda: comm.Split(0), lambda: comm.Create(comm.group), window) * 3:
    try:
        call()
        made += 1
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_OTHER, error
        assert "no more communicators can be made" in str(error), error
assert comm.allreduce(1) == 2 and 0 < made < 5, made
print("well")
"""
    assert launch(2, "-c", program).stdout == "well\n" * 2
