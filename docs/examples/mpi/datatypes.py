# SPDX-License-Identifier: Apache-2.0
# ranks: 3
"""Derived datatypes: blocks of a matrix, columns, fields of records, and a transposition.

The matrix is cut into bands of columns: subarrays at the root, contiguous at the others.
"""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank
ROWS, BAND = 6, 4

# -- bands of columns, by subarrays that one scatter sends --
matrix = np.arange(ROWS * BAND * size, dtype="f8").reshape(ROWS, BAND * size)
band = MPI.DOUBLE.Create_subarray([ROWS, BAND * size], [ROWS, BAND], [0, 0])
narrow = band.Create_resized(0, BAND * 8).Commit()
mine = np.empty((ROWS, BAND))
comm.Scatter([matrix, 1, narrow] if rank == 0 else None, mine)
assert (mine == matrix[:, rank * BAND : (rank + 1) * BAND]).all()
back = np.zeros_like(matrix)
comm.Gather(mine * 2, [back, 1, narrow] if rank == 0 else None)
assert rank != 0 or (back == 2 * matrix).all()
narrow.Free()
band.Free()

# -- a transposition on the way: columns are sent, rows are received --
square = np.arange(16, dtype="i4").reshape(4, 4) + 100 * rank
column = MPI.INT.Create_vector(4, 1, 4).Create_resized(0, 4).Commit()
turned = np.empty((4, 4), dtype="i4")
right, left = (rank + 1) % size, (rank - 1) % size
comm.Sendrecv([square, 4, column], right, 1, turned, left, 1)
assert (turned == square.T - 100 * rank + 100 * left).all()

# -- fields of records --
record = np.dtype([("name", "S8"), ("x", "f8"), ("n", "i4"), ("pad", "V4")])
many = np.zeros(5, dtype=record)
fields = MPI.Datatype.Create_struct(
    [8, 1, 1],
    [record.fields[name][1] for name in ("name", "x", "n")],
    [MPI.CHAR, MPI.DOUBLE, MPI.INT],
)
kind = fields.Create_resized(0, record.itemsize).Commit()
if rank == 0:
    many["name"], many["x"], many["n"] = b"record", np.arange(5) / 2, np.arange(5)
comm.Bcast([many, 5, kind])
assert many["x"].tolist() == [0, 0.5, 1, 1.5, 2]
assert set(many["name"]) == {b"record"}

# -- single items, by an index --
chosen = MPI.INT.Create_indexed_block(1, [9, 0, 4]).Commit()
numbers = np.arange(10, dtype="i4") * (rank + 1)
three = np.empty(3, dtype="i4")
comm.Sendrecv([numbers, 1, chosen], right, 2, three, left, 2)
assert three.tolist() == [9 * (left + 1), 0, 4 * (left + 1)]

# -- packed by hand --
room = bytearray(MPI.INT.Pack_size(3, comm) + MPI.DOUBLE.Pack_size(2, comm))
at = MPI.INT.Pack(three, room, 0, comm)
at = MPI.DOUBLE.Pack(np.array([0.5, 1.5]), room, at, comm)
comm.Sendrecv_replace([room, at, MPI.PACKED], right, 3, left, 3)
ints, doubles = np.empty(3, dtype="i4"), np.empty(2)
at = MPI.INT.Unpack(room, 0, ints, comm)
MPI.DOUBLE.Unpack(room, at, doubles, comm)
assert ints[0] == 9 * ((left - 1) % size + 1)
assert doubles.tolist() == [0.5, 1.5]
for each in (column, kind, fields, chosen):
    each.Free()
if rank == 0:
    print("blocks, columns, fields, and single items")
