# SPDX-License-Identifier: Apache-2.0
# ranks: 4
"""Files: all ranks write one array, each reads other parts of it, and a log is shared.

A view shows each rank its part of the file, so that the program names no offsets. The shared
pointer gives every record of the log a place of its own, without a message.
"""

import tempfile
from pathlib import Path

import numpy as np
from mpi4py import MPI

ROWS, COLUMNS = 60, 48
comm = MPI.COMM_WORLD
folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
whole = np.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS)

# -- each rank writes some rows --
rows = np.array_split(np.arange(ROWS), comm.size)[comm.rank]
tile = MPI.DOUBLE.Create_subarray([ROWS, COLUMNS], [len(rows), COLUMNS], [rows[0], 0]).Commit()
path = f"{folder}/array"
file = MPI.File.Open(comm, path, MPI.MODE_RDWR | MPI.MODE_CREATE)
file.Set_view(0, MPI.DOUBLE, tile)
file.Write_all(whole[rows].copy())
comm.Barrier()  # all have written

# -- and reads some columns --
columns = np.array_split(np.arange(COLUMNS), comm.size)[comm.rank]
strip = MPI.DOUBLE.Create_subarray([ROWS, COLUMNS], [ROWS, len(columns)], [0, columns[0]]).Commit()
file.Set_view(0, MPI.DOUBLE, strip)
found = np.empty((ROWS, len(columns)))
file.Read_all(found)
assert (found == whole[:, columns]).all()
file.Close()
tile.Free()
strip.Free()
assert (np.fromfile(path).reshape(ROWS, COLUMNS) == whole).all(), "numpy reads it as well"

# -- a log: every record has a place, and those of one rank lie in order --
record = np.dtype([("rank", "i4"), ("step", "i4")])
log = MPI.File.Open(comm, f"{folder}/log", MPI.MODE_WRONLY | MPI.MODE_CREATE)
for step in range(100):
    log.Write_shared(np.array([(comm.rank, step)], record).view("u1"))
log.Close()
records = np.fromfile(f"{folder}/log", record)
assert len(records) == 100 * comm.size
assert (records[records["rank"] == comm.rank]["step"] == np.arange(100)).all()

comm.Barrier()
if comm.rank == 0:
    for each in Path(folder).iterdir():
        each.unlink()
    Path(folder).rmdir()
    print(f"an array of {ROWS} x {COLUMNS} and {len(records)} records: as written")
