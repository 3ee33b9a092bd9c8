# SPDX-License-Identifier: Apache-2.0
# ranks: 3
"""Rings: non-blocking, persistent, synchronous, buffered, and with objects of any kind."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

# Each rank passes on what it got; after as many steps as there are ranks all is at home.
for size in (0, 1, 1000, 100_000):
    mine = np.full(size, comm.rank, dtype="i8")
    there = np.empty_like(mine)
    for step in range(comm.size):
        requests = [comm.Irecv(there, left, step), comm.Isend(mine, right, step)]
        MPI.Request.Waitall(requests)
        mine, there = there, mine
    assert (mine == comm.rank).all()

# The same two buffers again and again: persistent requests are made once.
out, into = np.zeros(500), np.empty(500)
ring = [comm.Send_init(out, right, 7), comm.Recv_init(into, left, 7)]
for turn in range(20):
    out[:] = turn * comm.size + comm.rank
    MPI.Prequest.Startall(ring)
    done = []
    while len(done) < len(ring):
        done += MPI.Request.Waitsome(ring) or []
    assert (into == turn * comm.size + left).all()
for request in ring:
    request.Free()

# A synchronous send ends when it is matched: here the receive is there first.
waiting = comm.irecv(source=left, tag=8)
comm.ssend({"from": comm.rank, "list": [1, "two", 3.0]}, right, 8)
assert waiting.wait() == {"from": left, "list": [1, "two", 3.0]}

# A buffered send ends at once, so that all may send before any receives.
MPI.Attach_buffer(bytearray(100_000 + MPI.BSEND_OVERHEAD))
comm.Bsend(np.full(10_000, comm.rank, dtype="f8"), right, 9)
got = np.empty(10_000)
status = MPI.Status()
comm.Recv(got, MPI.ANY_SOURCE, 9, status)
assert (got == left).all()
assert (status.source, status.Get_count(MPI.DOUBLE)) == (left, 10_000)
MPI.Detach_buffer()

# Both at once, in place.
token = np.array([comm.rank])
comm.Sendrecv_replace(token, right, 10, left, 10)
assert token[0] == left
comm.Barrier()
if comm.rank == 0:
    print(f"all tokens came home, {comm.size} ranks")
