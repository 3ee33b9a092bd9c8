# SPDX-License-Identifier: Apache-2.0
"""Collectives of objects that fail at a rank: no rank waits for it, those that need it raise."""

import pytest

from mpi.launcher.jobs import launch

PROGRAM = """
from shmnd.mpi import MPI

comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank
ring = comm.Create_cart([size], [True])


class Bad:
    def __reduce__(self):
        raise OSError("cannot be pickled")


def bad(x, y):
    raise ZeroDivisionError(f"{x} with {y}")


def bad_right(x, y):
    if y == 1:
        raise ZeroDivisionError(f"{x} with {y}")
    return x + y


def bad_result(x, y):
    return Bad()


def at(who, wrong, right):
    return wrong if rank == who else right


def count(call):
    # What a call raises here.
    try:
        call()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_OTHER, error
        return str(error).partition("it failed at ")[2][:24]
    except Exception as error:
        return type(error).__name__
    return ""


ALL = {
    "allreduce, everywhere": lambda: comm.allreduce(rank, bad),
    "allreduce, at the first": lambda: comm.allreduce(rank, at(0, bad, MPI.SUM)),
    "allreduce, one": lambda: comm.allreduce(rank, bad_right),
    "allreduce, its result": lambda: comm.allreduce(rank, bad_result),
    "allreduce, the last's object": lambda: comm.allreduce(at(size - 1, Bad(), rank)),
    "allreduce, no operation": lambda: comm.allreduce(rank, at(size - 1, 5, MPI.SUM)),
    "bcast": lambda: comm.bcast(at(0, Bad(), None)),
    "bcast of the last": lambda: comm.bcast(at(size - 1, Bad(), None), size - 1),
    "scatter, one": lambda: comm.scatter(at(0, [Bad(), *range(1, size)], None)),
    "scatter, too few": lambda: comm.scatter(at(0, [1] * (size - 1), None)),
    "scatter, a number": lambda: comm.scatter(at(1, 5, None), 1),
    "allgather": lambda: comm.allgather(at(1, Bad(), 0)),
    "alltoall": lambda: comm.alltoall(at(1, [Bad()] * size, [0] * size)),
    "alltoall, too few": lambda: comm.alltoall(at(0, [], [0] * size)),
}
SOME = {
    "gather": lambda: comm.gather(at(1, Bad(), 0)),
    "gather at the last": lambda: comm.gather(at(0, Bad(), 0), size - 1),
    "gather, the root's": lambda: comm.gather(at(0, Bad(), 0)),
    "reduce": lambda: comm.reduce(rank, bad),
    "reduce at the last": lambda: comm.reduce(rank, bad, size - 1),
    "reduce, its result": lambda: comm.reduce(rank, bad_result, size - 1),
    "scan": lambda: comm.scan(rank, bad),
    "exscan": lambda: comm.exscan(rank, bad),
    "scan, one": lambda: comm.scan(at(size - 1, Bad(), rank)),
    "neighbor_allgather": lambda: ring.neighbor_allgather(at(0, Bad(), 0)),
    "neighbor_alltoall": lambda: ring.neighbor_alltoall(at(0, [], [0, 0])),
}
for name, call in {**ALL, **SOME}.items():
    found = comm.allgather(count(call))
    own = [kind for kind in found if kind and not kind.startswith("rank")]
    assert own, (name, found)
    for what in found:
        assert bool(what) or name in SOME, (name, found)
        who = int(what.split()[1][:-1]) if what.startswith("rank") else -1
        assert who < 0 or what.partition(": ")[2].startswith(found[who][:8]), (name, found)
    assert comm.allreduce(1) == ring.allreduce(1) == size, name
    assert not comm.Iprobe() and not ring.Iprobe()

half = comm.Split(rank % 2)
if size > 1:
    inter = half.Create_intercomm(0, comm, 1 - rank % 2)
    for name, call in {
        "inter allreduce": lambda: inter.allreduce(rank, bad),
        "inter allgather": lambda: inter.allgather(at(0, Bad(), 0)),
        "inter bcast": lambda: inter.bcast(
            at(0, Bad(), 0), (MPI.ROOT if rank == 0 else MPI.PROC_NULL) if rank % 2 == 0 else 0
        ),
    }.items():
        found = comm.allgather(count(call))
        assert any(found) or (size < 4 and "reduce" in name), (name, found)
        assert inter.allgather(1) == [1] * inter.remote_size
print("well")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_fails_ends_the_waits_for_it(ranks: int) -> None:
    assert launch(ranks, "--timeout", "60", "-c", PROGRAM).stdout.count("well") == ranks


MAKES = """
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank
readonly = np.zeros(4)
readonly.flags.writeable = False
half = comm.Split(rank % 2)


def at(who, wrong, right):
    return wrong if rank == who else right


def between(bad):
    # The leaders of both groups are ranks 0 and 1 of the job.
    return half.Create_intercomm(0, comm, 55 if bad else 1 - rank % 2)


for who in range(size):
    for own, call in (
        (BufferError, lambda: MPI.Win.Create(at(who, readonly, np.zeros(4)), 8, comm=comm)),
        (TypeError, lambda: MPI.Win.Create(at(who, 7, None), comm=comm)),
        (MPI.ERR_DISP, lambda: MPI.Win.Create(None, at(who, 0, 1), comm=comm)),
        (MPI.ERR_DISP, lambda: MPI.Win.Create(None, at(who, 1 << 40, 1), comm=comm)),
        (MPI.ERR_SIZE, lambda: MPI.Win.Allocate(at(who, -5, 8), comm=comm)),
        (MPI.ERR_SIZE, lambda: MPI.Win.Allocate_shared(at(who, 1 << 70, 8), comm=comm)),
        (TypeError, lambda: MPI.Win.Allocate(at(who, "8", 8), comm=comm)),
        (TypeError, lambda: MPI.Win.Create_dynamic(at(who, {}, MPI.INFO_NULL), comm=comm)),
    ):
        try:
            call()
        except MPI.Exception as error:
            assert error.Get_error_class() == at(who, own, MPI.ERR_OTHER), error
            assert rank == who or f"it failed at rank {who}: " in str(error), error
            assert str(error).count("Win."), error
        except (BufferError, TypeError) as error:
            assert rank == who and type(error) is own, error
        else:
            raise AssertionError(own)
        assert comm.allreduce(1) == size
if half.rank == 0:
    comm.send("a group of its own", 1 - rank)  # no other rank is asked
if rank % 2:
    try:
        between(True)
    except MPI.Exception as error:
        if half.rank == 0:
            assert error.Get_error_class() == MPI.ERR_RANK, error
        else:
            assert "Comm.Create_intercomm" in str(error), error
            assert "it failed at rank 0: Exception: MPI_ERR_RANK" in str(error), error
    else:
        raise AssertionError("no error")
    assert half.allreduce(1) == size // 2
if half.rank == 0:
    comm.recv(source=1 - rank)
between(False).Free()
for wrong in (lambda: comm.Create(None), lambda: comm.Create_group([0])):
    try:
        wrong()
    except TypeError as error:
        assert "is not a group of MPI" in str(error), error
"""


def test_a_rank_that_cannot_take_part_in_making_a_window_keeps_none_waiting() -> None:
    launch(4, "-c", MAKES)
