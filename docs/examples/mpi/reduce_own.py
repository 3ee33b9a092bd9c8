# SPDX-License-Identifier: Apache-2.0
# ranks: 3
"""Reductions by operations of one's own: on objects, on arrays, and one that does not commute."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank

# Any function of two objects.
assert comm.allreduce({rank}, lambda a, b: a | b) == set(range(size))
words = comm.reduce(f"<{rank}>", lambda a, b: a + b, root=size - 1)
assert words == ("".join(f"<{each}>" for each in range(size)) if rank == size - 1 else None)


# A function of two buffers: products of 2 x 2 matrices, whose order matters.
def times(left: memoryview, right: memoryview, datatype: MPI.Datatype) -> None:
    """Put the product into the right one."""
    a = np.frombuffer(left, dtype="d").reshape(-1, 2, 2)
    b = np.frombuffer(right, dtype="d").reshape(-1, 2, 2)
    b[:] = a @ b


product = MPI.Op.Create(times, commute=False)
factors = [np.array([[1.0, each + 1.0], [0.5 * each, 1.0]]) for each in range(size)]
expected = np.linalg.multi_dot(factors) if size > 1 else factors[0]
matrix = MPI.DOUBLE.Create_contiguous(4).Commit()
got = np.empty((2, 2))
comm.Allreduce([factors[rank], 1, matrix], [got, 1, matrix], product)
assert np.allclose(got, expected)
comm.Scan([factors[rank], 1, matrix], [got, 1, matrix], product)
assert np.allclose(got, np.linalg.multi_dot([np.eye(2), np.eye(2), *factors[: rank + 1]]))
matrix.Free()
product.Free()

# The place of the largest value, and reductions in place.
pair = np.array([(10.0 - rank, rank)], dtype=[("value", "d"), ("place", "i")])
best = np.empty_like(pair)
comm.Allreduce([pair, 1, MPI.DOUBLE_INT], [best, 1, MPI.DOUBLE_INT], MPI.MAXLOC)
assert best["place"][0] == 0
total = np.arange(1000.0) * (rank + 1)
comm.Allreduce(MPI.IN_PLACE, total)
assert (total == np.arange(1000.0) * (size * (size + 1) / 2)).all()
share = np.empty(2)
comm.Reduce_scatter_block(np.arange(2.0 * size), share)
assert share.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]
before = np.zeros(1, dtype="i")
comm.Exscan(np.array([rank + 1], dtype="i"), before)
assert rank == 0 or before[0] == rank * (rank + 1) // 2
if rank == 0:
    print("as expected")
