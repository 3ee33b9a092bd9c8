# SPDX-License-Identifier: Apache-2.0
"""Ranks that name different numbers of bytes in a collective: an error, and no wait without end."""

import pytest

from mpi.launcher.jobs import launch

PROGRAM = """
import sys, time
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
form, odd = sys.argv[1], int(sys.argv[2])
LENGTHS = [(2, 1), (2, 3), (10, 20), (20, 100), (500, 2000), (10000, 5000), (5000, 10000)]
z, root = np.zeros, rank == 0

def vector(n, blocks):
    return [z(n * blocks), [n] * blocks]

def general(n, blocks):
    return [z(n * blocks), [n] * blocks, [8 * n * i for i in range(blocks)], [MPI.DOUBLE] * blocks]

def calls(n):
    return {
        "Bcast": (z(n), 0),
        "Gather": (z(n), z(n * size) if root else None),
        "Gatherv": (z(n), vector(n, size) if root else None),
        "Scatter": (z(n * size) if root else None, z(n)),
        "Scatterv": (vector(n, size) if root else None, z(n)),
        "Allgather": (z(n), z(n * size)),
        "Allgatherv": (z(n), vector(n, size)),
        "Alltoall": (z(n * size), z(n * size)),
        "Alltoallv": (vector(n, size), vector(n, size)),
        "Alltoallw": (general(n, size), general(n, size)),
        "Reduce": (z(n), z(n) if root else None),
        "Allreduce": (z(n), z(n)),
        "Scan": (z(n), z(n)),
        "Exscan": (z(n), z(n)),
        "Reduce_scatter_block": (z(n * size), z(n)),
        "Reduce_scatter": (z(n * size), z(n), [n] * size),
        "Neighbor_allgather": (z(n), z(2 * n)),
        "Neighbor_allgatherv": (z(n), vector(n, 2)),
        "Neighbor_alltoall": (z(2 * n), z(2 * n)),
        "Neighbor_alltoallv": (vector(n, 2), vector(n, 2)),
        "Neighbor_alltoallw": (general(n, 2), general(n, 2)),
    }

def outcome(comm, name, arguments):
    try:
        if form == "blocking":
            getattr(comm, name)(*arguments)
            return "passed"
        if form == "persistent":
            request = getattr(comm, name + "_init")(*arguments)
            request.Start()
        else:
            request = getattr(comm, "I" + name.lower())(*arguments)
        until = time.monotonic() + 30
        while not request.Test():
            if time.monotonic() > until:
                return "waited"
        return "passed"
    except MPI.Exception as error:
        if error.Get_error_class() == MPI.ERR_OTHER:
            return "part of another"
        assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
        return str(error)

def check(others, odd_count):
    # Where each receive is of one pair, a shorter message fits it: the root takes part with more
    # than rank 2, or 1.
    longer = (odd_count > others) == (odd == 0)
    fit = {"Scatter", "Scatterv"} if not longer else {"Gatherv"}
    made = calls(odd_count if rank == odd else others)
    if form == "blocking" and max(others, odd_count) * 8 > 4096:
        # Ranks that send long messages return when these are taken.
        made = {name: made[name] for name in ("Bcast", "Reduce", "Allreduce", "Alltoall")}
    for name, arguments in made.items():
        comm = world.Create_cart([size], [True]) if name.startswith("N") else world.Dup()
        comm.Set_name("the one")
        outcomes = world.gather(outcome(comm, name, arguments))
        if rank == 0:
            case = (name, others, odd_count, outcomes)
            assert "waited" not in outcomes, case
            for each in outcomes:
                assert each in ("passed", "part of another") or (
                    "Comm." in each and " of the one: " in each
                ), case
            told = [each for each in outcomes if " bytes" in each and "rank " in each]
            assert not told if name in fit else told, case
    return len(made)

checked = [check(*lengths) for lengths in LENGTHS]
if rank == 0:
    print(*checked)
"""


@pytest.mark.parametrize("form", ["blocking", "non-blocking", "persistent"])
@pytest.mark.parametrize("who", [0, 2])
def test_every_family_reports_it(form: str, who: int) -> None:
    said = launch(3, "-c", PROGRAM, form, str(who)).stdout
    long = 4 if form == "blocking" else 21
    assert [int(each) for each in said.split()] == [21] * 4 + [long] * 3


SHORTER = """
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
gaps = MPI.DOUBLE.Create_vector(1, 1, 2).Create_resized(0, 16).Commit()

def into(n, layout):
    # (buffer, what it takes, the items there)
    if layout == "plain":
        data = np.full(n, -1.0)
        return data, data, data
    data = np.full(2 * n, -1.0)
    return data, [data, n, gaps], data[::2]

for n in 1, 60, 20_000:
    row = np.arange(size * n, dtype=float)
    mine = row[rank * n : (rank + 1) * n].copy()
    for layout in "plain", "gaps":
        for name in "Scatter", "Scatterv", "Iscatter", "Scatter_init":
            data, spec, items = into(n + 3, layout)
            given = row if rank == 0 else None
            if name == "Scatterv" and rank == 0:
                given = [row, [n] * size]
            request = getattr(world, name)(given, spec)
            for again in 1, 2:
                if again == 2:
                    items[n:] = -2.0
                if name == "Scatter_init":
                    request.Start()
                if request is not None and request != MPI.REQUEST_NULL:
                    request.Wait()
                assert (items[:n] == mine).all(), (name, layout, n)
                assert (items[n:] == (-2.0 if again == 2 else -1.0)).all(), (name, layout, n, items)
                assert layout == "plain" or (data[1::2] == -1.0).all()
    out = np.tile(mine, size)
    data = np.full((size, n + 2), -1.0)
    room = [data, [n + 2] * size, [(n + 2) * each for each in range(size)], MPI.DOUBLE]
    for name in "Alltoallv", "Allgatherv", "Gatherv":
        data[:] = -1.0
        given = [out, [n] * size] if name == "Alltoallv" else mine
        getattr(world, name)(given, room if name != "Gatherv" or rank == 0 else None)
        if name != "Gatherv" or rank == 0:
            assert (data[:, :n].ravel() == row).all(), (name, n)
            assert (data[:, n:] == -1.0).all(), (name, n)
    ring = world.Create_cart([size], [True])
    data = np.full((2, n + 1), -1.0)
    ring.Neighbor_alltoallv(
        [np.tile(mine, 2), [n] * 2], [data, [n + 1] * 2, [0, n + 1], MPI.DOUBLE]
    )
    assert (data[:, n] == -1.0).all() and (data[0, :n] == row.reshape(size, n)[rank - 1]).all()
print("well")
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_receive_of_one_pair_may_be_larger(ranks: int) -> None:
    assert launch(ranks, "-c", SHORTER).stdout == "well\n" * ranks


IN_PLACE = """
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
gaps = MPI.DOUBLE.Create_vector(1, 1, 2).Create_resized(0, 16).Commit()
data = np.zeros(2 * size)
requests = {
    "Allgather": world.Allgather_init(MPI.IN_PLACE, [data, 1, gaps]),
    "Alltoall": world.Alltoall_init(MPI.IN_PLACE, [data, 1, gaps]),
}
for turn in range(3):
    for name, request in requests.items():
        data[:] = -1.0
        data[2 * rank] = 10.0 * turn + rank
        if name == "Alltoall":
            data[::2] = 10.0 * turn + rank
        request.Start()
        request.Wait()
        assert data[::2].tolist() == [10.0 * turn + each for each in range(size)], (name, data)
        assert (data[1::2] == -1.0).all()
for request in requests.values():
    request.Free()
print("well")
"""


def test_in_place_data_are_packed_at_each_start() -> None:
    assert launch(3, "-c", IN_PLACE).stdout == "well\n" * 3
