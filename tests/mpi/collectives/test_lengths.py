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
form, others, odd_count, odd = sys.argv[1], *map(int, sys.argv[2:])
n = odd_count if rank == odd else others
z, root = np.zeros, rank == 0

def vector(blocks):
    return [z(n * blocks), [n] * blocks]

def general(blocks):
    return [z(n * blocks), [n] * blocks, [8 * n * i for i in range(blocks)], [MPI.DOUBLE] * blocks]

CALLS = {
    "Bcast": (z(n), 0),
    "Gather": (z(n), z(n * size) if root else None),
    "Gatherv": (z(n), vector(size) if root else None),
    "Scatter": (z(n * size) if root else None, z(n)),
    "Scatterv": (vector(size) if root else None, z(n)),
    "Allgather": (z(n), z(n * size)),
    "Allgatherv": (z(n), vector(size)),
    "Alltoall": (z(n * size), z(n * size)),
    "Alltoallv": (vector(size), vector(size)),
    "Alltoallw": (general(size), general(size)),
    "Reduce": (z(n), z(n) if root else None),
    "Allreduce": (z(n), z(n)),
    "Scan": (z(n), z(n)),
    "Exscan": (z(n), z(n)),
    "Reduce_scatter_block": (z(n * size), z(n)),
    "Reduce_scatter": (z(n * size), z(n), [n] * size),
    "Neighbor_allgather": (z(n), z(2 * n)),
    "Neighbor_allgatherv": (z(n), vector(2)),
    "Neighbor_alltoall": (z(2 * n), z(2 * n)),
    "Neighbor_alltoallv": (vector(2), vector(2)),
    "Neighbor_alltoallw": (general(2), general(2)),
}
if form == "blocking" and max(others, odd_count) * 8 > 4096:
    # Ranks that send long messages return when these are taken.
    CALLS = {name: CALLS[name] for name in ("Bcast", "Reduce", "Allreduce", "Alltoall")}

def outcome(comm, name):
    try:
        if form == "blocking":
            getattr(comm, name)(*CALLS[name])
            return "passed"
        if form == "persistent":
            request = getattr(comm, name + "_init")(*CALLS[name])
            request.Start()
        else:
            request = getattr(comm, "I" + name.lower())(*CALLS[name])
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

for name in CALLS:
    comm = world.Create_cart([size], [True]) if name.startswith("N") else world.Dup()
    comm.Set_name("the one")
    outcomes = world.gather(outcome(comm, name))
    if rank == 0:
        assert "waited" not in outcomes, (name, outcomes)
        for each in outcomes:
            assert each in ("passed", "part of another") or (
                "Comm." in each and " of the one: " in each
            ), each
        told = [each for each in outcomes if " bytes" in each and "rank " in each]
        assert told, (name, outcomes)
        print("well")
"""


@pytest.mark.parametrize("form", ["blocking", "non-blocking", "persistent"])
@pytest.mark.parametrize(
    ("others", "odd"),
    [(2, 1), (2, 3), (10, 20), (20, 100), (500, 2000), (10000, 5000), (5000, 10000)],
)
@pytest.mark.parametrize("who", [0, 2])
def test_every_family_says_so(form: str, others: int, odd: int, who: int) -> None:
    said = launch(3, "-c", PROGRAM, form, str(others), str(odd), str(who)).stdout
    assert said.count("well") in (4, 21), said
