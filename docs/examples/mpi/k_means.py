# SPDX-License-Identifier: Apache-2.0
# ranks: 3
"""k-means: every rank has its points; the centres are found by reductions that overlap work.

The result has the same bits on all ranks, whatever their number of points.
"""

import numpy as np
from mpi4py import MPI

CENTRES, POINTS = 4, 600
comm = MPI.COMM_WORLD
chance = np.random.default_rng(100 + comm.rank)
corners = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
points = corners[chance.integers(CENTRES, size=POINTS)] + chance.normal(size=(POINTS, 2))

centres = np.array([[1.0, 1.0], [8.0, 2.0], [2.0, 8.0], [8.0, 8.0]])
comm.Bcast(centres)
for _ in range(20):
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    sums, counts = np.zeros_like(centres), np.zeros(CENTRES)
    np.add.at(sums, nearest, points)
    np.add.at(counts, nearest, 1)
    requests = [comm.Iallreduce(MPI.IN_PLACE, sums), comm.Iallreduce(MPI.IN_PLACE, counts)]
    distance = float(((points - centres[nearest]) ** 2).sum())
    MPI.Request.Waitall(requests)
    moved = sums / counts[:, None]
    if np.array_equal(moved, centres):
        break
    centres = moved
assert np.abs(centres - corners).max() < 0.5
assert len({each.tobytes() for each in comm.allgather(centres)}) == 1, "the same bits everywhere"
if comm.rank == 0:
    print("centres:", *(f"({x:.2f}, {y:.2f})" for x, y in centres))
