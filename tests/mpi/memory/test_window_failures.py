# SPDX-License-Identifier: Apache-2.0
"""Windows whose memory a rank cannot reach: an error of MPI at all ranks, and no wait."""

import os
from pathlib import Path

import pytest

from mpi.launcher.jobs import launch, launch_program
from shmnd.mpi.one_sided.offers import open_held

NO_SUCH_MEMORY = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
win = MPI.Win.Create_dynamic(comm=comm)
own, one, old = np.zeros(4, "i8"), np.ones(1, "i8"), np.zeros(1, "i8")
win.Attach(own)
places = comm.allgather(MPI.Get_address(own))
other = 1 - comm.rank
win.Lock_all()
for call in (
    lambda: win.Put(one, other, 8),
    lambda: win.Get(old, other, 8),
    lambda: win.Accumulate(one, other, 8),
    lambda: win.Fetch_and_op(one, old, other, 8),
):
    try:
        call()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_RMA_RANGE, error
        assert f"rank {other}" in str(error), error
    else:
        raise AssertionError("no error")
win.Accumulate(one, other, places[other])
win.Unlock_all()
comm.Barrier()
assert own.tolist() == [1, 0, 0, 0]
win.Detach(own)
win.Free()
"""


def test_an_address_where_the_target_has_no_memory_is_an_error_of_the_range() -> None:
    launch(2, "-c", NO_SUCH_MEMORY)


MAKES = """
import os, signal, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
first = comm.bcast(os.getpid(), 0)
true_open = os.open
def opens(path, *rest):
    if str(path).startswith(f"/proc/{first}/fd/"):
        BEFORE
    return true_open(path, *rest)
if comm.rank == 1:
    os.open = opens
comm.Barrier()
try:
    MPI.Win.Allocate(64, comm=comm)
except (MPI.Exception, OSError) as error:
    found = error
os.open = true_open
"""


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("raise OSError(24, 'Too many open files')", "Too many open files"),
        ("raise LookupError('not today')", "LookupError: not today"),
    ],
)
def test_a_rank_that_cannot_open_the_memory_leaves_no_other_rank_waiting(
    before: str, text: str
) -> None:
    handler = """
handled = []
comm.Set_errhandler(MPI.Comm.Create_errhandler(lambda where, code: handled.append(code)))
"""
    after = f"""
assert isinstance(found, MPI.Exception) and handled == [MPI.ERR_OTHER], (found, handled)
assert "rank 1 has no access" in str(found) and {text!r} in str(found), found
assert (found.__cause__ is not None) == (comm.rank == 1), found.__cause__
comm.Barrier()
win = MPI.Win.Allocate(64, comm=comm)
win.Free()
"""
    launch(3, "-c", MAKES.replace("try:", handler + "try:").replace("BEFORE", before) + after)


NO_DESCRIPTOR = """
import resource
from mpi4py import MPI
comm = MPI.COMM_WORLD
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
for turn in range(2):  # the first window imports a module, which the second one has
    if comm.rank == LIMITED:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        MPI.Win.Allocate(64, comm=comm)
    except MPI.Exception as error:
        assert f"rank LIMITED has no access to it: " in str(error), error
        assert "process is 0, which ulimit -n raises" in str(error), error
        found = error.Get_error_class()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == MPI.ERR_OTHER
    del found
MPI.Win.Allocate(64, comm=comm).Free()
"""


@pytest.mark.parametrize("limited", [0, 1])
def test_all_ranks_report_the_limit_of_a_rank_without_a_descriptor(limited: int) -> None:
    launch_program(3, NO_DESCRIPTOR.replace("LIMITED", str(limited)))


def test_all_ranks_report_a_first_rank_that_cannot_make_the_memory() -> None:
    program = """
import os
from mpi4py import MPI
comm = MPI.COMM_WORLD
true_memory = os.memfd_create
def refuse(*rest):
    raise OSError(24, "Too many open files")
if comm.rank == 0:
    os.memfd_create = refuse
try:
    MPI.Win.Allocate(64, comm=comm)
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_OTHER, error
    assert "rank 0 has no access" in str(error), error
    print("well")
os.memfd_create = true_memory
MPI.Win.Allocate(64, comm=comm).Free()
"""
    assert launch(2, "-c", program).stdout == "well\n" * 2


def test_a_rank_that_dies_while_a_window_is_made_is_a_failed_process() -> None:
    before = """
        os.kill(first, signal.SIGKILL)
        while os.path.exists(f"/proc/{first}/fd/0"):
            time.sleep(0.001)
"""
    after = """
assert isinstance(found, MPI.Exception), found
assert found.Get_error_class() == MPI.ERR_PROC_FAILED, found
rest = comm.Shrink()
assert rest.allreduce(1) == 2
print("well")
"""
    program = MAKES.replace("BEFORE", before.strip()) + after
    ran = launch(3, "--enable-recovery", "-c", program)
    assert ran.stdout.count("well") == 2


WAITS = """
import os, signal
from mpi4py import MPI
comm = MPI.COMM_WORLD
called = []
def note(kind):
    return lambda where, code: called.append((kind, where, MPI.Get_error_class(code)))
comm.Set_errhandler(MPI.Comm.Create_errhandler(note("comm")))
own = comm.Dup()
names = ("Fence", "Start", "Wait", "Lock", "Free")
wins = {name: MPI.Win.Allocate(8, comm=own) for name in names}
for win in wins.values():
    win.Set_errhandler(MPI.Win.Create_errhandler(note("win")))
other = comm.group.Incl([1])
wins["Lock"].Fence()
if comm.rank == 1:
    wins["Lock"].Lock(0)
    comm.Barrier()
    os.kill(os.getpid(), signal.SIGKILL)
comm.Barrier()
wins["Wait"].Post(other)
calls = {
    "Fence": wins["Fence"].Fence,
    "Start": lambda: wins["Start"].Start(other),
    "Wait": wins["Wait"].Wait,
    "Lock": lambda: wins["Lock"].Lock(0),
    "Free": wins["Free"].Free,
}
for name, call in calls.items():
    called.clear()
    try:
        call()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_PROC_FAILED, (name, error)
        assert f"Win.{name} of the window of 2" in str(error), (name, str(error))
    else:
        raise AssertionError(name)
    assert called == [("win", wins[name], MPI.ERR_PROC_FAILED)], (name, called)
print("all handled")
"""


def test_the_waits_of_a_window_leave_their_errors_to_its_handler_alone() -> None:
    assert "all handled" in launch(2, "--enable-recovery", "-c", WAITS).stdout


def test_a_segment_is_opened_only_where_a_rank_holds_that_very_one(tmp_path: Path) -> None:
    """The number of a file is its own in one file system: those of others may have it, too."""
    with (tmp_path / "file").open("w") as file:
        found = os.fstat(file.fileno())
        place = os.getpid(), file.fileno()
        os.close(open_held(*place, (found.st_dev, found.st_ino)))
        for other in ((found.st_dev + 1, found.st_ino), (found.st_dev, found.st_ino + 1)):
            with pytest.raises(ProcessLookupError, match="does not hold the segment"):
                open_held(*place, other)
