# SPDX-License-Identifier: Apache-2.0
# ranks: 4
"""A product of matrices that are spread over a square of ranks, by Cannon's method."""

import numpy as np
from mpi4py import MPI

PART = 60
world = MPI.COMM_WORLD
side = int(world.size**0.5)
comm = world.Split(0 if world.rank < side * side else MPI.UNDEFINED)
if comm != MPI.COMM_NULL:
    grid = comm.Create_cart([side, side], periods=[True, True])
    row, column = grid.coords
    whole = np.random.default_rng(1).integers(0, 9, size=(2, side * PART, side * PART))

    def part(which: int) -> np.ndarray:
        """Return this rank's part of a factor."""
        rows = slice(row * PART, (row + 1) * PART)
        return whole[which, rows, column * PART : (column + 1) * PART].astype("f8")

    a, b, c = part(0), part(1), np.zeros((PART, PART))
    source, dest = grid.Shift(1, -row)
    grid.Sendrecv_replace(a, dest, 1, source, 1)
    source, dest = grid.Shift(0, -column)
    grid.Sendrecv_replace(b, dest, 2, source, 2)
    for _ in range(side):
        c += a @ b
        source, dest = grid.Shift(1, -1)
        grid.Sendrecv_replace(a, dest, 3, source, 3)
        source, dest = grid.Shift(0, -1)
        grid.Sendrecv_replace(b, dest, 4, source, 4)
    expected = whole[0] @ whole[1]
    here = expected[row * PART : (row + 1) * PART, column * PART : (column + 1) * PART]
    assert (c == here).all()
    if grid.rank == 0:
        print(f"a product of {side * PART} x {side * PART}, with {side} x {side} ranks")
    grid.Free()
    comm.Free()
world.Barrier()
