# SPDX-License-Identifier: Apache-2.0
"""Calls that are made of others are shown, and named in errors, as what the program called."""

import re
import threading
from pathlib import Path

import pytest

from shmnd.mpi.transport.outer_call import OuterCall, full_name, name_of, place_of

from .jobs import launch

BEGIN = """
import sys, threading, time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
"""

SHOWN = (
    BEGIN
    + """
import mmap, os
from shmnd.mpi.transport import job_memory
memory = mmap.mmap(int(os.environ["SHMND_MPI_JOB"]), 0, prot=mmap.PROT_READ)

def shown(each, wanted):
    # The call in which a rank waits, as `shmnd ps` reads it; it may take a while.
    until = time.monotonic() + 20
    while True:
        wait = job_memory.wait_of(memory, each)
        found = wait and (wait.call, wait.comm, wait.tag)
        if found == wanted or time.monotonic() > until:
            return found
        time.sleep(0.001)

def check(call, title, make, first=None):
    # Rank 0 comes last, when it has seen that the others wait.
    if rank == 0:
        for each in 1, 2:
            found = shown(each, (call, title, -1))
            assert found == (call, title, -1), (call, each, found)
    return make() if rank or first is None else first()

def wait(pair):
    pair[1].Wait()

world, all = "MPI_COMM_WORLD", comm.group
def of(call, make, title=world):
    return check(call, title, make)
"""
)


def test_calls_made_of_others_are_shown_by_their_names(tmp_path: Path) -> None:
    program = f"""{SHOWN}
path = sys.argv[1]
of("Dup", comm.Dup)
of("Idup", lambda: wait(comm.Idup()))
of("Split", lambda: comm.Split(0))
of("Split_type", lambda: comm.Split_type(MPI.COMM_TYPE_SHARED))
of("Create", lambda: comm.Create(all))
of("Create_group", lambda: comm.Create_group(all))
of("Intracomm.Create_from_group", lambda: MPI.Intracomm.Create_from_group(all, "a"), "'a'")
cart = of("Create_cart", lambda: comm.Create_cart([3]))
cart.Set_name("ring")
of("Sub", lambda: cart.Sub([True]), "ring")
of("Create_graph", lambda: comm.Create_graph([0, 0, 0], []))
of("Create_dist_graph_adjacent", lambda: comm.Create_dist_graph_adjacent([], []))
of("Create_dist_graph", lambda: comm.Create_dist_graph([], [], []))
of("Reduce_scatter", lambda: comm.Reduce_scatter(np.zeros(3), np.zeros(1)))
of("Agree", lambda: comm.Agree(1))
of("Iagree", lambda: comm.Iagree(np.zeros(1, "i")).Wait())
of("Shrink", comm.Shrink)
of("Ishrink", lambda: wait(comm.Ishrink()))

half = comm.Split(rank > 0)
inter = of("Create_intercomm", lambda: half.Create_intercomm(0, comm, int(not rank)),
           "the communicator of 2")
of("Intercomm.Create_from_groups", lambda: MPI.Intercomm.Create_from_groups(
    half.group, 0, MPI.Group.Difference(all, half.group), 0, "b"), "'b'")
two = "the intercommunicator of 2 and 1"
of("Barrier", inter.Barrier, two)
of("Bcast", lambda: inter.Bcast(np.zeros(1), 0 if rank else MPI.ROOT), two)
of("Dup", inter.Dup, two)
of("Split", lambda: inter.Split(0), two)
of("Merge", inter.Merge, two)
of("Agree", lambda: inter.Agree(1), two)

of("Win.Create", lambda: MPI.Win.Create(None, comm=comm))
of("Win.Allocate_shared", lambda: MPI.Win.Allocate_shared(8, comm=comm))
of("Win.Create_dynamic", lambda: MPI.Win.Create_dynamic(comm=comm))
win = of("Win.Allocate", lambda: MPI.Win.Allocate(8, comm=comm))
win.Set_name("table")
of("Win.Fence", win.Fence, "table")
win.Fence(MPI.MODE_NOSUCCEED)
if rank == 0: win.Lock(0)
comm.Barrier()
check("Win.Lock_all", "table", lambda: (win.Lock_all(), win.Unlock_all()), lambda: win.Unlock(0))
comm.Barrier()
if rank == 0: win.Lock(0)
comm.Barrier()
check("Win.Lock(0)", "table", lambda: (win.Lock(0), win.Unlock(0)), lambda: win.Unlock(0))
mine, others = all.Incl([0]), all.Excl([0])
check("Win.Start", "table", lambda: (win.Start(mine), win.Complete()),
      lambda: (win.Post(others), win.Wait()))
if rank: win.Post(mine)
check("Win.Wait", "table", lambda: win.Wait(), lambda: (win.Start(others), win.Complete()))
of("Win.Free", win.Free, "table")

file = of("File.Open", lambda: MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR),
          repr(path))
for name, call in {{
    "Set_size": lambda: file.Set_size(9), "Preallocate": lambda: file.Preallocate(9),
    "Set_atomicity": lambda: file.Set_atomicity(True), "Set_view": file.Set_view,
    "Seek_shared": lambda: file.Seek_shared(0),
    "Write_ordered": lambda: file.Write_ordered(b"x"),
    "Read_ordered": lambda: file.Read_ordered(bytearray(1)),
    "Write_ordered_begin": lambda: file.Write_ordered_begin(b"x"),
}}.items():
    of("File." + name, call, repr(path))
file.Write_ordered_end(b"x")
of("File.Close", file.Close, repr(path))
print("well")
"""
    ran = launch(3, "-c", program, str(tmp_path / "f"))
    assert ran.stdout == "well\n" * 3, ran


def test_another_thread_waits_in_its_own_call() -> None:
    program = f"""{SHOWN}
from shmnd.mpi.transport.outer_call import OuterCall
if rank == 1:
    with OuterCall("Split", comm.ob, comm.ob.context):
        other = threading.Thread(target=lambda: comm.recv(source=0, tag=5))
        other.start()
        other.join()
elif rank == 0:
    found = shown(1, ("recv", world, 5))
    comm.send(None, 1, 5)
    print(found)
"""
    assert launch(3, "-c", program).stdout == "('recv', 'MPI_COMM_WORLD', 5)\n"


DISPUTES = (
    ("comm.Split(0)", "comm.Dup()", "Comm.Split", "Comm.Dup"),
    ("comm.Split(0)", "comm.allgather(1)", "Comm.Split", "Comm.allgather"),
    ("comm.Split(0)", "comm.Split_type(0)", "Comm.Split", "Comm.Split_type"),
    ("file.Set_size(1)", "file.Preallocate(1)", "File.Set_size", "File.Preallocate"),
)


def test_ranks_that_disagree(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    program = f"""{BEGIN}
file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
for calls in {[each[:2] for each in DISPUTES]}:
    try:
        eval(calls[rank])
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
        print(error, flush=True)
    assert comm.sendrecv(rank, 1 - rank, source=1 - rank) == 1 - rank
"""
    said = launch(2, "-c", program, path).stdout
    for mine, _, *names in DISPUTES:
        title = repr(path) if "file" in mine else "MPI_COMM_WORLD"
        for each in 0, 1:
            own, other = names[each], names[1 - each].removeprefix("Comm.")
            text = f"{own} of {title}: rank {1 - each} is in another collective, {other}; "
            assert text in said, said


def test_a_rank_that_died() -> None:
    program = f"""{BEGIN}
import os
win = MPI.Win.Allocate(8, comm=comm)
win.Set_name("table")
comm.Barrier()
if rank == 1:
    os._exit(0)
for call in (
    lambda: comm.Split(0), win.Fence, lambda: comm.Create_cart([2]),
    lambda: MPI.Intracomm.Create_from_group(comm.group.Incl([1, 0]), "both"),
):
    try:
        call()
    except MPI.Exception as error:
        print(str(error).partition(": ")[2])
"""
    ran = launch(2, "--enable-recovery", "-c", program)
    found = re.findall(r"(\S+ of \S+): .* died", ran.stdout)
    assert found == ["Comm.Split of MPI_COMM_WORLD", "Win.Fence of table",
                     "Comm.Create_cart of MPI_COMM_WORLD",
                     "Intracomm.Create_from_group of 'both'"], ran  # fmt: skip


def test_the_outermost_block_of_a_thread_that_has_the_context_counts() -> None:
    assert full_name("Split") == "Comm.Split"
    assert full_name("Win.Fence") == "Win.Fence"
    assert place_of(16, "bcast", "c") == "Comm.bcast of c"
    with OuterCall("File.Open", "'f'", 16) as outer, OuterCall("Win.Allocate", "w", 24, 2) as inner:
        assert place_of(17, "bcast", "c") == "File.Open of 'f'"
        assert name_of(39, "bcast") == "Win.Allocate"
        assert name_of(40, "bcast") == "Comm.bcast", "a handler uses another communicator"
        inner.cover(40)
        assert name_of(40, "bcast") == "Win.Allocate", "the other block does not have the first one"
        outer.cover(24)
        inner.cover(48)
        assert name_of(48, "bcast") == "File.Open"
        found = []
        thread = threading.Thread(target=lambda: found.append(name_of(16, "bcast")))
        thread.start()
        thread.join()
        assert found == ["Comm.bcast"]
    with pytest.raises(KeyError), OuterCall("Split", "c", 16):
        raise KeyError
    assert name_of(16, "bcast") == "Comm.bcast"
