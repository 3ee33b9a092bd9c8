# SPDX-License-Identifier: Apache-2.0
# ranks: 4
"""One-sided calls: a shared counter hands out work, a histogram is summed in place, and a lock.

No rank receives anything: the others reach into the windows. `Fetch_and_op` is atomic, so that
each number is given once; `Compare_and_swap` finds a maximum; shared windows are memory that all
ranks map.
"""

import numpy as np
from mpi4py import MPI

JOBS, BINS = 500, 16
comm = MPI.COMM_WORLD

# -- a counter: each rank takes the next number until there are none --
memory = np.zeros(1, dtype="i8") if comm.rank == 0 else None
counter = MPI.Win.Create(memory, disp_unit=8, comm=comm)
one, number, mine = np.ones(1, dtype="i8"), np.empty(1, dtype="i8"), []
while True:
    counter.Lock(0, MPI.LOCK_SHARED)
    counter.Fetch_and_op(one, number, 0, 0, MPI.SUM)
    counter.Unlock(0)
    if number[0] >= JOBS:
        break
    mine.append(int(number[0]))
every = comm.gather(mine)
if every is not None:
    assert sorted(number for each in every for number in each) == list(range(JOBS)), (
        "each number is given once"
    )
counter.Free()

# -- a histogram that all ranks add to, between two fences --
bins = np.zeros(BINS, dtype="i8")
window = MPI.Win.Create(bins, disp_unit=8, comm=comm)
window.Fence()
for job in mine:
    window.Accumulate(one, job % comm.size, (job % BINS, 1), MPI.SUM)
window.Fence()
assert comm.allreduce(int(bins.sum())) == JOBS
window.Free()

# -- the largest value, by compare and swap --
top = MPI.Win.Allocate(8, 8, comm=comm)
local = np.frombuffer(top.tomemory(), dtype="i8")
local[:] = 0
comm.Barrier()
value, seen = np.array([(comm.rank * 7) % 5 + 1]), np.zeros(1, dtype="i8")
top.Lock_all()
expected = np.zeros(1, dtype="i8")
while value[0] > expected[0]:
    top.Compare_and_swap(value, expected, seen, 0, 0)
    top.Flush(0)
    if seen[0] == expected[0]:
        break
    expected[:] = seen
top.Unlock_all()
comm.Barrier()
if comm.rank == 0:
    top.Lock(0)
    assert local[0] == max((rank * 7) % 5 + 1 for rank in range(comm.size))
    top.Unlock(0)
comm.Barrier()
top.Free()

# -- post, start, complete, wait: only neighbours meet --
cell = np.full(1, -1, dtype="i8")
window = MPI.Win.Create(cell, disp_unit=8, comm=comm)
group = comm.Get_group()
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
window.Post(group.Incl([left]))
window.Start(group.Incl([right]))
window.Put(np.array([comm.rank]), right)
window.Complete()
window.Wait()
assert cell[0] == left
window.Free()

# -- memory that all ranks map --
shared = MPI.Win.Allocate_shared(8 * comm.size if comm.rank == 0 else 0, 8, comm=comm)
whole = np.frombuffer(shared.Shared_query(0)[0], dtype="i8")
shared.Fence()
whole[comm.rank] = comm.rank**2
shared.Fence()
assert whole.tolist() == [rank**2 for rank in range(comm.size)]
shared.Fence()
del whole
shared.Free()
if comm.rank == 0:
    print(f"{JOBS} numbers, each once")
