# SPDX-License-Identifier: Apache-2.0
# ranks: 4
"""The Jacobi method for heat on a plate: a Cartesian grid of ranks, and halos by datatypes.

Rows of a part lie together; a column is a vector of one item a row. Each step exchanges the four
edges without blocking, then averages; a reduction tells when nothing changes any more.
"""

import numpy as np
from mpi4py import MPI

SIDE = 24
"""Points of the whole plate, each way; the edge around it is 1 above and 0 elsewhere."""
SMALL = 1e-4


def part_of(size: int, parts: int, place: int) -> tuple[int, int]:
    """Return where the part at a place begins, and how long it is."""
    first = size * place // parts
    return first, size * (place + 1) // parts - first


def plate(rows: int, columns: int, top: bool) -> np.ndarray:
    """Return a part of the plate with a halo around it."""
    heat = np.zeros((rows + 2, columns + 2))
    if top:
        heat[0] = 1
    return heat


def average(heat: np.ndarray) -> np.ndarray:
    """Return the inner points after one step."""
    return (heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]) / 4


def alone() -> tuple[np.ndarray, int]:
    """Return the plate that one process computes, and the steps that it took."""
    heat, steps, change = plate(SIDE, SIDE, True), 0, 1.0
    while change > SMALL:
        new = average(heat)
        change = float(np.abs(new - heat[1:-1, 1:-1]).max())
        heat[1:-1, 1:-1] = new
        steps += 1
    return heat[1:-1, 1:-1], steps


def main() -> None:
    """Compute the plate with all ranks, and compare it with that of one."""
    dims = MPI.Compute_dims(MPI.COMM_WORLD.size, 2)
    grid = MPI.COMM_WORLD.Create_cart(dims, periods=[False, False], reorder=True)
    first_row, rows = part_of(SIDE, dims[0], grid.coords[0])
    first_column, columns = part_of(SIDE, dims[1], grid.coords[1])
    heat = plate(rows, columns, grid.coords[0] == 0)
    up, down = grid.Shift(0, 1)
    left, right = grid.Shift(1, 1)
    column = MPI.DOUBLE.Create_vector(rows, 1, columns + 2).Commit()

    steps, change = 0, 1.0
    while change > SMALL:
        requests = [
            grid.Irecv(heat[0, 1:-1], up, 1),
            grid.Irecv(heat[-1, 1:-1], down, 2),
            grid.Irecv([heat.ravel()[columns + 2 :], 1, column], left, 3),
            grid.Irecv([heat.ravel()[2 * columns + 3 :], 1, column], right, 4),
            grid.Isend(heat[1, 1:-1], up, 2),
            grid.Isend(heat[-2, 1:-1], down, 1),
            grid.Isend([heat.ravel()[columns + 3 :], 1, column], left, 4),
            grid.Isend([heat.ravel()[2 * columns + 2 :], 1, column], right, 3),
        ]
        MPI.Request.Waitall(requests)
        new = average(heat)
        change = grid.allreduce(float(np.abs(new - heat[1:-1, 1:-1]).max()), MPI.MAX)
        heat[1:-1, 1:-1] = new
        steps += 1
    column.Free()

    parts = grid.gather((first_row, first_column, heat[1:-1, 1:-1].copy()))
    if parts is not None:
        whole = np.empty((SIDE, SIDE))
        for row, place, part in parts:
            whole[row : row + part.shape[0], place : place + part.shape[1]] = part
        expected, expected_steps = alone()
        assert steps == expected_steps
        assert (whole == expected).all()
        print(f"{steps} steps, as one process takes, with a grid of {dims[0]} x {dims[1]} ranks")


if __name__ == "__main__":
    main()
