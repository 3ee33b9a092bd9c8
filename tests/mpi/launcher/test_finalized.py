# SPDX-License-Identifier: Apache-2.0
"""Calls after Finalize: those that communicate are an error that names them."""

import pytest

from .jobs import launch

_PROGRAM = """
import numpy as np
from mpi4py import MPI
comm, one, other = MPI.COMM_WORLD, np.zeros(1), np.zeros(1)
dup, window = comm.Dup(), MPI.Win.Allocate(8)
prepared, revoked = comm.Send_init(one, 0), comm.Dup()
revoked.Revoke()
MPI.Finalize()
CALLS = {
    "Comm.Barrier of MPI_COMM_WORLD": comm.Barrier,
    "Comm.bcast of MPI_COMM_WORLD": lambda: comm.bcast(1),
    "Comm.Bcast of": lambda: comm.Bcast(one),
    "Comm.Allreduce of": lambda: comm.Allreduce(one, other),
    "Comm.allreduce of MPI_COMM_SELF": lambda: MPI.COMM_SELF.allreduce(1),
    "Comm.Ibarrier of": comm.Ibarrier,
    "Comm.Send of": lambda: comm.Send(one, 0),
    "Comm.send of": lambda: comm.send(1, 0),
    "Comm.Irecv of": lambda: comm.Irecv(one),
    "Comm.Iprobe of": comm.Iprobe,
    "Comm.Dup of": dup.Dup,
    "Comm.Split of": comm.Split,
    "Comm.Create_group of": lambda: comm.Create_group(comm.Get_group()),
    "Comm.Create_intercomm of": lambda: comm.Create_intercomm(0, comm, 0),
    "Intracomm.Create_from_group": lambda: comm.Create_from_group(comm.Get_group()),
    "Prequest.Start": prepared.Start,
    "Comm.Revoke of": dup.Revoke,
    "Comm.Agree of": lambda: dup.Agree(1),
    "Comm.Shrink of": dup.Shrink,
    "Comm.Ishrink of": dup.Ishrink,
    "Win.Lock of": lambda: window.Lock(0),
}
for name, call in CALLS.items():
    try:
        call()
    except MPI.Exception as error:
        assert f"{name}" in str(error) and "MPI is finalized" in str(error), (name, error)
        assert error.Get_error_class() == MPI.ERR_OTHER
    else:
        raise AssertionError(name)
# What asks no other rank stays.
assert MPI.Is_finalized() and comm.rank < comm.size
assert not comm.Is_revoked() and revoked.Is_revoked()
assert not comm.Get_failed().size and comm.Ack_failed() == 0
print("well")
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_calls_that_communicate(ranks: int) -> None:
    assert launch(ranks, "-c", _PROGRAM).stdout.count("well") == ranks


ATTRIBUTES = """
import sys
from mpi4py import MPI
def seen(comm, key, value):
    print(value, comm == MPI.COMM_SELF, MPI.Is_finalized(), MPI.COMM_WORLD.allreduce(1))
def raising(comm, key, value):
    raise ValueError("of the last")
for value in (1, 2):
    MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=seen), value)
MPI.COMM_SELF.Set_attr(MPI.Comm.Create_keyval(delete_fn=raising), 3)
if len(sys.argv) > 1:
    MPI.Finalize()
    print("finalized", MPI.Is_finalized())
"""


def test_finalize_first_deletes_the_attributes_of_comm_self_the_last_one_first() -> None:
    ran = launch(2, "-c", ATTRIBUTES, "finalizes")
    assert sorted(ran.stdout.splitlines()) == sorted(
        2 * ["2 True False 2", "1 True False 2", "finalized True"]
    )
    assert ran.stderr.count("ValueError: of the last") == 2


def test_a_program_that_just_ends_deletes_no_attributes() -> None:
    """As in mpi4py, whose functions are gone when MPI is finalized."""
    ran = launch(2, "-c", ATTRIBUTES)
    assert not ran.stdout + ran.stderr
