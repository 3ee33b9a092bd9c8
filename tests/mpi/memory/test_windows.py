# SPDX-License-Identifier: Apache-2.0
"""The memory of windows as arrays: it stays as long as an array refers to it."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi.launcher.jobs import launch, python
from shmnd.mpi import MPI

OWN = ["Allocate", "Allocate_shared"]


def made(kind: str, nbytes: int) -> Any:
    if kind == "Create":
        return MPI.Win.Create(bytearray(nbytes))
    return getattr(MPI.Win, kind)(nbytes)


@pytest.mark.parametrize("kind", ["Create", *OWN])
def test_a_window_is_an_object_with_the_buffer_protocol(kind: str) -> None:
    win = made(kind, 80)
    array = np.frombuffer(win, np.int64)
    array[:] = range(10)
    assert bytes(win) == array.tobytes() == bytes(win.tomemory())
    assert not memoryview(win).readonly
    win.Free()
    with pytest.raises(MPI.Exception, match="the window is null") as caught:
        memoryview(win)
    assert caught.value.Get_error_class() == MPI.ERR_WIN


def test_a_window_without_memory_is_an_empty_buffer() -> None:
    for win in (MPI.Win.Create(None), MPI.Win.Create_dynamic()):
        assert memoryview(win).nbytes == 0
        win.Free()


@pytest.mark.parametrize("kind", ["Create", *OWN])
def test_releasing_a_view_leaves_the_window_its_memory(kind: str) -> None:
    win = made(kind, 80)
    address, nbytes, unit = win.attrs
    win.tomemory().release()
    if kind != "Create":
        win.Shared_query(0)[0].release()
    assert win.attrs == (address, nbytes, unit)
    assert len(win.tomemory()) == 80
    win.Free()


DROPPED = """
import gc
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD

def shared(free):
    'What programs do: the array is returned, the window is forgotten.'
    win = MPI.Win.Allocate_shared(800_000 if comm.rank == 0 else 0, 8, comm=comm)
    array = np.ndarray(100_000, buffer=win.Shared_query(0)[0])
    if free:
        win.Free()
    return array

def own(kind, free):
    win = getattr(MPI.Win, kind)(800_000, 8, comm=comm)
    arrays = np.frombuffer(win, float), np.asarray(win.tomemory().toreadonly()[8:]).view(float)
    if free:
        win.Free()
    return arrays

for free in (False, True):
    theirs = shared(free)
    mine = [own(kind, free) for kind in ("Allocate", "Allocate_shared")]
    gc.collect()
    if comm.rank == 0:
        theirs[:] = 3
    comm.Barrier()
    assert (theirs == 3).all()
    for array, rest in mine:
        array[:] = comm.rank + 1
        assert (rest == comm.rank + 1).all() and len(rest) == 99_999
    comm.Barrier()
print("well")
"""


@pytest.mark.slow
def test_arrays_outlive_their_windows() -> None:
    assert launch(2, "-c", DROPPED).stdout.count("well") == 2


def mapped(address: int) -> str:
    """Return the mapping of an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = line.split()[0].split("-")
        if int(first, 16) <= address < int(last, 16):
            return line
    return ""


def test_the_memory_ends_with_its_last_array() -> None:
    win = made("Allocate_shared", 80)
    address = win.attrs[0]
    before = mapped(address)
    array = np.frombuffer(win, np.uint8)
    win.Free()
    assert mapped(address) == before
    del array, win
    gc.collect()
    assert mapped(address) != before


LAID_OUT = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
sizes = [12, 0, 5, 8]
own = sizes[comm.rank]

def parts(**hints):
    info = MPI.Info.Create(hints)
    win = MPI.Win.Allocate_shared(own, 1, info, comm)
    views = [win.Shared_query(rank)[0] for rank in range(4)]
    assert [each.nbytes for each in views] == sizes
    return win, [each.address for each in views]

for hints in {}, {"alloc_shared_noncontig": "false"}:
    win, at = parts(**hints)
    assert [each - at[0] for each in at] == [0, 12, 12, 17], at
    np.frombuffer(win, "u1")[:] = comm.rank + 1
    win.Fence()
    # What programs do: they take the parts of all ranks as one array.
    whole = bytes(MPI.buffer.fromaddress(at[0], 25))
    assert whole == bytes(rank + 1 for rank in range(4) for _ in range(sizes[rank])), whole
    win.Fence()
    before = np.zeros(5, "u1")
    win.Accumulate(np.full(5, 3, "u1"), 2, op=MPI.SUM)  # at an odd address
    win.Fence()
    win.Get(before, 2)
    win.Fence()
    assert before.tolist() == [3 + 4 * 3] * 5
    win.Free()
win, at = parts(alloc_shared_noncontig="true")
assert not any(each % 64 for each in at), at
win.Free()
print("well")
"""


@pytest.mark.slow
def test_the_parts_of_a_shared_window_are_contiguous() -> None:
    assert launch(4, "-c", LAID_OUT).stdout.count("well") == 4


SPINNING = """
import os, sys
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
line = [sys.executable, "-m", "shmnd.mpi", "-n", "3", "--oversubscribe", "-c", sys.argv[1]]
os.execv(sys.executable, line)
"""
TURNS = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Allocate_shared(8 if comm.rank == 0 else 0, comm=comm)
place = np.frombuffer(win.Shared_query(0)[0], "i8")
comm.Barrier()
one, none, seen = np.ones(1, "i8"), np.zeros(1, "i8"), np.empty(1, "i8")
def read(op=MPI.NO_OP, given=none):
    win.Fetch_and_op(given, seen, 0, op=op)
def flush():
    read()
    win.Flush(0)
def flush_all():
    read()
    win.Flush_all()
def sync():
    win.Sync()
    seen[0] = place[0]
def unlock():
    win.Lock(0, MPI.LOCK_SHARED)
    read()
    win.Unlock(0)
for look in flush, flush_all, sync, unlock:
    spins, begun = 0, comm.bcast(int(place[0]))
    comm.Barrier()
    if look is not unlock:
        win.Lock_all()
    for turn in range(60):
        look()
        while seen[0] != begun + turn * comm.size + comm.rank:
            look()
            spins += 1
        if look is unlock:
            win.Lock(0, MPI.LOCK_SHARED)
        read(MPI.SUM, one)
        if look is unlock:
            win.Unlock(0)
    if look is not unlock:
        win.Unlock_all()
    spins = comm.allreduce(spins)
    assert spins < 60 * 3 * 300, (look.__name__, spins)
    comm.Barrier()
win.Free()
"""


def test_ranks_that_wait_by_calls_of_a_window_leave_their_core_to_others() -> None:
    """Without that, each turn takes the rest of a time slice: thousands of calls."""
    python("-c", SPINNING, TURNS)
