# SPDX-License-Identifier: Apache-2.0
# ranks: 4
"""Objects of any kind, scattered and gathered; arrays among them without a copy, by pkl5.

`mpi4py.util.pkl5` sends large buffers of an object out of band, so that pickling copies none.
"""

import pickle

import numpy as np
from mpi4py import MPI
from mpi4py.util import pkl5

comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank

settings = [{"name": f"run {each}", "values": list(range(each))} for each in range(size)]
mine = comm.scatter(settings if rank == 0 else None)
assert mine == settings[rank]
assert comm.gather(len(mine["values"]), root=1) == (list(range(size)) if rank == 1 else None)
assert comm.bcast(("any", {"thing": None}) if rank == 0 else None) == ("any", {"thing": None})
assert comm.alltoall([(rank, each) for each in range(size)]) == [
    (each, rank) for each in range(size)
]
assert comm.exscan(1) == (None if rank == 0 else rank)

wide = pkl5.Intracomm(comm)
table = {"rank": rank, "data": np.full(200_000, rank, dtype="f4"), "note": "x" * 100_000}
right, left = (rank + 1) % size, (rank - 1) % size
request = wide.isend(table, right, 5)
got = wide.recv(source=left, tag=5)
request.wait()
assert got["rank"] == left
assert (got["data"] == left).all()
assert len(got["note"]) == 100_000
for each in wide.allgather(table):
    assert (each["data"] == each["rank"]).all()
message = None
request = wide.isend(table, rank, 6)
while message is None:
    message = wide.improbe(source=rank, tag=6)
assert message.recv()["rank"] == rank
request.wait()

# Objects that cannot be pickled are an error at the sender, and nothing is sent.
refused = False
try:
    comm.send(lambda: None, rank, 11)
except (AttributeError, TypeError, pickle.PicklingError):
    refused = True
assert refused
assert not comm.iprobe(source=rank, tag=11)
comm.Barrier()
if rank == 0:
    print("all objects came whole")
