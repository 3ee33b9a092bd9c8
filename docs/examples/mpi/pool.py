# SPDX-License-Identifier: Apache-2.0
# ranks: 3
# module: mpi4py.futures
"""A parameter sweep by `MPIPoolExecutor`: rank 0 runs the program, the others work for it."""

import os

from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor, as_completed, wait


def cost(x: float, y: float) -> tuple[float, float, float]:
    """Return how far a point is from the valley, and the point."""
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2, x, y


def fails(reason: str) -> None:
    """Raise what the caller shall see."""
    raise ValueError(reason)


def place() -> tuple[int, int]:
    """Return the rank of the worker and its process."""
    return MPI.COMM_WORLD.rank, os.getpid()


def main() -> None:
    """Sweep, and check errors, order and time limits."""
    steps = [each / 10 for each in range(-10, 21)]
    with MPIPoolExecutor() as executor:
        assert executor.num_workers == MPI.COMM_WORLD.size - 1
        points = [(x, y) for x in steps for y in steps]
        best = min(executor.starmap(cost, points, chunksize=16))
        assert best == (0.0, 1.0, 1.0)
        lazy = executor.map(pow, range(20), [2] * 20, timeout=100)
        assert list(lazy) == [each**2 for each in range(20)]
        futures = {executor.submit(pow, 2, each): each for each in range(30)}
        for future in as_completed(futures):
            assert future.result() == 2 ** futures[future]
        broken = executor.submit(fails, "on purpose")
        wait([broken])
        assert isinstance(broken.exception(), ValueError)
        assert str(broken.exception()) == "on purpose"
        workers = {executor.submit(place).result() for _ in range(20)}
        assert all(rank > 0 and pid != os.getpid() for rank, pid in workers)
    print(f"the best of {len(points)} points is {best[1:]}")


if __name__ == "__main__":
    main()
