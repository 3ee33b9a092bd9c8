# SPDX-License-Identifier: Apache-2.0
"""Neighbourhood collectives on the edge of a grid: a block without a neighbour stays as it is."""

import pytest

from mpi.launcher.jobs import launch

PROGRAM = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
line = comm.Create_cart([comm.size], [False])
rank, last = line.rank, comm.size - 1
gaps = MPI.INT.Create_vector(2, 1, 2).Commit().Create_resized(0, 16).Commit()
sent, got = np.full(8, 1 + rank, "i4"), np.full(8, -1, "i4")
CALL
below, above = rank if rank else -1, rank + 2 if rank < last else -1
assert got.tolist() == [below, -1, below, -1, above, -1, above, -1], (rank, got)
"""

EACH = "[sent, [1, 1], [0, 1], gaps], [got, [1, 1], [0, 1], gaps]"
BYTES = "[sent, [1, 1], [0, 16], [gaps] * 2], [got, [1, 1], [0, 16], [gaps] * 2]"
CALLS = {
    "Neighbor_allgather": "[sent, 1, gaps], [got, 1, gaps]",
    "Neighbor_allgatherv": "[sent, 1, gaps], [got, [1, 1], [0, 1], gaps]",
    "Neighbor_alltoall": "[sent, 1, gaps], [got, 1, gaps]",
    "Neighbor_alltoallv": EACH,
    "Neighbor_alltoallw": BYTES,
}


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", CALLS)
def test_a_block_without_a_neighbour_stays_as_it_is(name: str, ranks: int) -> None:
    blocking = f"line.{name}({CALLS[name]})"
    started = f"line.I{name.lower()}({CALLS[name]}).Wait()"
    kept = f"made = line.{name}_init({CALLS[name]}); made.Start(); made.Wait()"
    for call in (blocking, started, kept):
        launch(ranks, "-c", PROGRAM.replace("CALL", call))


ALONE = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
sources, targets = ([], [1]) if comm.rank == 0 else ([0], [])
graph = comm.Create_dist_graph_adjacent(sources, targets)
sent = np.full(4, 7, "i4") if targets else np.empty(0, "i4")
got = np.full(4, 1, "i4") if sources else np.empty(0, "i4")
CALL
assert got.tolist() == [7] * (4 * len(sources)), got
"""


@pytest.mark.parametrize("name", ["Neighbor_allgather", "Neighbor_alltoall"])
def test_the_count_of_no_block_asks_for_no_memory(name: str) -> None:
    sent = "np.full(4, 7, 'i4')" if name == "Neighbor_allgather" else "sent"
    buffers = f"[{sent}, 4, MPI.INT], [got, 4, MPI.INT]"
    kept = f"made = graph.{name}_init({buffers}); made.Start(); made.Wait()"
    for call in (f"graph.{name}({buffers})", f"graph.I{name.lower()}({buffers}).Wait()", kept):
        launch(2, "-c", ALONE.replace("CALL", call))
