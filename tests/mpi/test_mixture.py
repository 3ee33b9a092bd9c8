# SPDX-License-Identifier: Apache-2.0
"""Operations of many kinds under way at the same time, ended in any order."""

import subprocess
import sys

import pytest

PATIENCE = 100

PROGRAM = """
import random
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size

# Waitsome over messages of all lengths, objects, a barrier, a reduction, and a null request.
came = [np.empty(1000 * k + 1, "i4") for k in range(12)]
requests = [comm.Irecv(came[k], left, k) for k in range(12)]
sent = [np.full(1000 * k + 1, 100 * rank + k, "i4") for k in range(12)]
requests += [comm.Isend(sent[k], right, k) for k in reversed(range(12))]
requests += [comm.isend({"of": rank}, right, 99), comm.irecv(source=left, tag=99)]
one, total = np.array([rank]), np.zeros(1, int)
requests += [comm.Ibarrier(), comm.Iallreduce(one, total), MPI.REQUEST_NULL]
ended = 0
while (indices := MPI.Request.Waitsome(requests)) is not None:
    ended += len(indices)
assert ended == len(requests) - 1
assert total[0] == sum(range(size))
for k, array in enumerate(came):
    assert (array == 100 * left + k).all(), k

# Collectives that do not block, waited for in an order of each rank's own.
begun, results = [], []
for k in range(40):
    mine = np.full(50 * k + 1, float(rank + k))
    if k % 3 == 0:
        into = np.empty_like(mine)
        begun.append(comm.Iallreduce(mine, into))
        results.append((mine, into, np.full_like(mine, sum(range(size)) + k * size)))
    elif k % 3 == 1:
        into = np.full(2000 * k, rank if rank == k % size else -1)
        begun.append(comm.Ibcast(into, k % size))
        results.append((mine, into, np.full_like(into, k % size)))
    else:
        into = np.empty((size, mine.size))
        begun.append(comm.Iallgather(mine, into))
        results.append((mine, into, np.arange(size)[:, None] + k + np.zeros_like(into)))
for k in random.Random(rank).sample(range(40), 40):
    begun[k].Wait()
for k, (_, into, expected) in enumerate(results):
    assert (into == expected).all(), k

# Messages that cross in both directions, each received into the buffer that it was sent from.
for length in (0, 10, 8193, 70_000, 3 << 20):
    both = np.full(length, rank, "u1")
    comm.Sendrecv_replace(both, right, 5, left, 5)
    assert (both == left).all(), length

# Read, add and write under a lock that all ranks want.
window = MPI.Win.Allocate(8, 8, comm=comm)
np.frombuffer(window.tomemory(), "i8")[:] = 0
comm.Barrier()
value = np.zeros(1, "i8")
for _ in range(100):
    window.Lock(0)
    window.Get(value, 0)
    window.Flush(0)
    value += 1
    window.Put(value, 0)
    window.Unlock(0)
comm.Barrier()
window.Lock(0, MPI.LOCK_SHARED)
window.Get(value, 0)
window.Unlock(0)
assert value[0] == 100 * size
comm.Barrier()
window.Free()
if rank == 0:
    print("well")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_operations_of_all_kinds_at_once(ranks: int) -> None:
    line = [sys.executable, "-m", "shmnd.mpi", "-n", str(ranks), "--oversubscribe"]
    line += ["--timeout", str(PATIENCE - 10), "-c", PROGRAM]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout) == (0, "well\n"), ran.stdout + ran.stderr
