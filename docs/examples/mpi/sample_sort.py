# SPDX-License-Identifier: Apache-2.0
# ranks: 4
"""Sorting by samples: numbers go to the rank that their range belongs to, by `Ialltoallv`.

Counts and displacements differ for every pair of ranks; while the numbers travel, the program
works on something else and asks now and then.
"""

import itertools

import numpy as np
from mpi4py import MPI

EACH = 20_000
comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank
numbers = np.random.default_rng(rank).normal(size=EACH + 17 * rank)
numbers.sort()

samples = numbers[:: max(1, numbers.size // (4 * size))][: 4 * size].copy()
every = np.empty(4 * size * size)
comm.Allgather(samples, every)
every.sort()
cuts = np.searchsorted(numbers, every[4 * size :: 4 * size][: size - 1])
counts = np.diff(np.concatenate(([0], cuts, [numbers.size]))).astype("i")
coming = np.empty_like(counts)
comm.Alltoall(counts, coming)

mine = np.empty(int(coming.sum()))
moving = comm.Ialltoallv((numbers, counts), (mine, coming))
worked = 0
while not moving.Test():
    worked += 1
mine.sort(kind="stable")

edges = comm.allgather((mine[0], mine[-1]) if mine.size else None)
known = [edge for edge in edges if edge is not None]
assert all(left[1] <= right[0] for left, right in itertools.pairwise(known))
sizes = comm.allgather(mine.size)
assert sum(sizes) == comm.allreduce(numbers.size)
whole = np.empty(sum(sizes)) if rank == 0 else None
comm.Gatherv(mine, (whole, sizes) if rank == 0 else None)
if whole is not None:
    parts = [np.random.default_rng(each).normal(size=EACH + 17 * each) for each in range(size)]
    assert (whole == np.sort(np.concatenate(parts))).all()
    print(f"{whole.size} numbers sorted")
