# SPDX-License-Identifier: Apache-2.0
"""Requests of collectives: they cannot be given up, and no call that begins one waits."""

from mpi.launcher.jobs import launch

_BEGIN = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
"""


def test_requests_of_collectives_are_not_cancelled_and_not_freed() -> None:
    program = f"""{_BEGIN}
def refused(what):
    try:
        what()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_REQUEST, error
        assert "the request of a collective is not" in str(error), error
        assert "Wait or Test ends it" in str(error), error
    else:
        raise SystemExit("it passed")

got = np.zeros(5)
for begin in comm.Ibarrier, lambda: comm.Iallreduce(np.ones(5), got), lambda: comm.Ibcast(got):
    request = begin()
    refused(request.Cancel)
    refused(request.Free)
    refused(request.cancel)
    assert request != MPI.REQUEST_NULL
    request.Wait()
request = comm.Allreduce_init(np.ones(5), got)
request.Start()
refused(request.Cancel)
refused(request.Free)
request.Wait()
assert (got == comm.size).all()
request.Free()  # one that is not under way
assert request == MPI.REQUEST_NULL
print("well")
"""
    assert launch(2, "-c", program).stdout == "well\n" * 2


def test_an_intercommunicator_is_duplicated_without_a_wait() -> None:
    program = f"""{_BEGIN}
half = comm.Split(rank % 2)
inter = half.Create_intercomm(0, comm, 1 - rank % 2)
if rank:
    comm.recv(source=rank - 1, tag=3)
twin, request = inter.Idup()  # the ranks begin one after the other
if rank + 1 < comm.size:
    comm.send(None, rank + 1, tag=3)
request.Wait()
assert twin.Is_inter() and twin.Get_remote_size() == inter.Get_remote_size()
assert MPI.Comm.Compare(twin, inter) == MPI.CONGRUENT
total = np.zeros(1)
twin.Allreduce(np.full(1, float(rank)), total)
assert total[0] == sum(each for each in range(comm.size) if each % 2 != rank % 2)
merged = twin.Merge(rank % 2)
assert merged.allreduce(1) == comm.size
print("well")
"""
    for ranks in 2, 3, 5:
        assert launch(ranks, "-c", program, patience=30).stdout == "well\n" * ranks
