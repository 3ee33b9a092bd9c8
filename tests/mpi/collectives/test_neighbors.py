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
below, above = rank if rank else -1, rank + 2 if rank < last else -1
for call in CALLS:
    sent, got = np.full(8, 1 + rank, "i4"), np.full(8, -1, "i4")
    exec(call)
    assert got.tolist() == [below, -1, below, -1, above, -1, above, -1], (rank, call, got)
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


def every_form(comm: str, name: str, buffers: str) -> list[str]:
    """Return the statements that make a collective blocking, non-blocking and persistent."""
    return [
        f"{comm}.{name}({buffers})",
        f"{comm}.I{name.lower()}({buffers}).Wait()",
        f"made = {comm}.{name}_init({buffers}); made.Start(); made.Wait()",
    ]


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_block_without_a_neighbour_stays_as_it_is(ranks: int) -> None:
    calls = [call for name, buffers in CALLS.items() for call in every_form("line", name, buffers)]
    launch(ranks, "-c", PROGRAM.replace("CALLS", repr(calls)))


ALONE = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
sources, targets = ([], [1]) if comm.rank == 0 else ([0], [])
graph = comm.Create_dist_graph_adjacent(sources, targets)
sent = np.full(4, 7, "i4") if targets else np.empty(0, "i4")
for call in CALLS:
    got = np.full(4, 1, "i4") if sources else np.empty(0, "i4")
    exec(call)
    assert got.tolist() == [7] * (4 * len(sources)), (call, got)
"""


def test_the_count_of_no_block_asks_for_no_memory() -> None:
    sent = {"Neighbor_allgather": "np.full(4, 7, 'i4')", "Neighbor_alltoall": "sent"}
    calls = [
        call
        for name, given in sent.items()
        for call in every_form("graph", name, f"[{given}, 4, MPI.INT], [got, 4, MPI.INT]")
    ]
    launch(2, "-c", ALONE.replace("CALLS", repr(calls)))


NODES = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
# with a zero before it, if the last number counts all edges; what follows those counted is not used
for index, edges, nodes, topology in [
    ([], [], 0, None),
    ([0], [], 0, None),
    ([0], [0], 1, ([0], [])),
    ([0, 0], [], 1, ([0], [])),
    ([0, 1], [0], 1, ([1], [0])),
    ([0, 1], [0, 1], 2, ([0, 1], [0])),
    ([0, 1, 2], [1, 0], 2, ([1, 2], [1, 0])),
    ([0, 1, 2], [1, 0, 0], 3, ([0, 1, 2], [1, 0])),
]:
    made = comm.Create_graph(index, edges)
    assert (made == MPI.COMM_NULL) == (comm.rank >= nodes), (index, edges)
    assert comm.Graph_map(index, edges) == (comm.rank if comm.rank < nodes else MPI.UNDEFINED)
    if made != MPI.COMM_NULL:
        assert made.Get_topo() == topology, (index, edges)
        made.Free()
"""


def test_a_graph_has_the_nodes_that_its_index_counts() -> None:
    """As mpi4py reads it, on Open MPI and on MPICH."""
    launch(3, "-c", NODES)
