# SPDX-License-Identifier: Apache-2.0
# ranks: 4
"""Topologies: a ring and a graph of one's own, exchanges with all neighbours, and sub-grids."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank

# -- a periodic grid: neighbours by one call --
ring = comm.Create_cart([size], periods=[True])
left, right = ring.Shift(0, 1)
assert ring.neighbor_allgather(ring.rank) == [left, right]
out, into = np.array([ring.rank * 10, ring.rank * 10 + 1]), np.empty(2, dtype=int)
ring.Neighbor_alltoall(out, into)
if size > 2:
    assert into.tolist() == [left * 10 + 1, right * 10]
ring.Free()

# -- rows and columns of a grid as communicators --
grid = comm.Create_cart(MPI.Compute_dims(size, 2), periods=[False, True])
row = grid.Sub([False, True])
column = grid.Sub([True, False])
assert row.size * column.size == size
assert row.allreduce(1) == grid.dims[1]
total = column.allreduce(row.allreduce(rank))
assert total == size * (size - 1) // 2
assert grid.Get_coords(grid.Get_cart_rank(grid.coords)) == grid.coords

# -- a graph: all talk to rank 0, which talks to all --
around = list(range(1, size)) if rank == 0 else [0]
star = comm.Create_dist_graph_adjacent(around, around)
request = star.Ineighbor_allgather(np.array([rank]), got := np.empty(len(around), dtype=int))
request.Wait()
assert got.tolist() == around

# -- groups, split and inter-communicators --
half = comm.Split(rank % 2, -rank)
assert half.allgather(rank) == sorted((r for r in range(size) if r % 2 == rank % 2), reverse=True)
if size > 1:
    other = half.Create_intercomm(half.size - 1, comm, 1 - rank % 2, tag=3)
    seen = other.allgather(rank)
    assert sorted(seen) == [r for r in range(size) if r % 2 != rank % 2]
    merged = other.Merge(high=bool(rank % 2))
    assert merged.size == size
    merged.Free()
    other.Free()
odd = comm.Get_group().Excl(range(0, size, 2))
odds = comm.Create_group(odd) if rank % 2 else MPI.COMM_NULL
assert (odds == MPI.COMM_NULL) == (rank % 2 == 0)
for each in (star, row, column, grid, half, odds):
    if each != MPI.COMM_NULL:
        each.Free()
if rank == 0:
    print("all neighbours answered")
