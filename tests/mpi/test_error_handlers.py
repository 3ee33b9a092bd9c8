# SPDX-License-Identifier: Apache-2.0
"""The error handlers of new objects: those of `mpi4py.rc.errors`, or those of their parents."""

import pytest

from mpi.launcher.jobs import FAILS, launch
from shmnd.mpi import constants

MADE = """
import os, tempfile
from mpi4py import MPI, rc
comm, group = MPI.COMM_WORLD, MPI.COMM_WORLD.Get_group()
path = os.path.join(tempfile.gettempdir(), f"handlers-{os.environ['SHMND_MPI_JOB']}-{os.getpid()}")

def made(comm):
    # Return new objects by the calls that make them of a communicator.
    later, request = comm.Idup()
    request.Wait()
    half = comm.Split(comm.rank)
    between = half.Create_intercomm(0, comm, 1 - comm.rank)
    cart = comm.Create_cart([2])
    return dict(
        Dup=comm.Dup(), Dup_with_info=comm.Dup_with_info(MPI.INFO_NULL), Idup=later,
        Split=half, Split_type=comm.Split_type(MPI.COMM_TYPE_SHARED), Create=comm.Create(group),
        Create_group=comm.Create_group(group), Create_cart=cart, Sub=cart.Sub([True]),
        Create_graph=comm.Create_graph([0, 0, 0], []), Shrink=comm.Shrink(),
        Create_dist_graph=comm.Create_dist_graph([], [], []),
        Create_dist_graph_adjacent=comm.Create_dist_graph_adjacent([], []),
        Create_intercomm=between, Merge=between.Merge(), Dup_inter=between.Dup(),
        Split_inter=between.Split(0), Create_inter=between.Create(half.Get_group()),
    )

def rootless(comm):
    # Return new objects that are made of no other one.
    groups = group.Incl([comm.rank]), group.Incl([1 - comm.rank])
    return dict(
        Create_from_group=MPI.Intracomm.Create_from_group(group, "one"),
        Create_from_groups=MPI.Intercomm.Create_from_groups(groups[0], 0, groups[1], 0, "two"),
        Create_win=MPI.Win.Create(bytearray(8), comm=comm), Init=MPI.Session.Init(),
        Allocate=MPI.Win.Allocate(8, comm=comm), Create_dynamic=MPI.Win.Create_dynamic(comm=comm),
        Allocate_shared=MPI.Win.Allocate_shared(8, comm=comm),
    )

def handlers(objects):
    return {name: each.Get_errhandler() for name, each in objects.items()}

def all_have(objects, handler):
    others = [name for name, each in handlers(objects).items() if each != handler]
    assert not others, others

def file_of(comm):
    mode = MPI.MODE_CREATE | MPI.MODE_DELETE_ON_CLOSE | MPI.MODE_RDWR
    file = MPI.File.Open(MPI.COMM_SELF, path, mode)
    handler = file.Get_errhandler()
    file.Close()
    return handler

calls = []
mine = MPI.Comm.Create_errhandler(lambda where, code: calls.append((where, code)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("errors", "handler", "of_files", "after"),
    [
        ("exception", "ERRORS_RETURN", "ERRORS_RETURN", "MPI.ERRORS_RETURN"),
        ("abort", "ERRORS_ABORT", "ERRORS_ABORT", "MPI.ERRORS_ABORT"),
        ("fatal", "ERRORS_ARE_FATAL", "ERRORS_ARE_FATAL", "MPI.ERRORS_ARE_FATAL"),
        ("default", "ERRORS_ARE_FATAL", "ERRORS_RETURN", "mine"),
    ],
)
def test_new_objects_have_the_handler_of_the_settings_or_of_their_parents(
    monkeypatch: pytest.MonkeyPatch, errors: str, handler: str, of_files: str, after: str
) -> None:
    """With the settings of mpi4py a handler set for the parent is not passed on; by default it is.

    An object without a parent has that of the settings in either case.
    """
    monkeypatch.setenv("MPI4PY_RC_ERRORS", errors)
    program = f"""{MADE}
all_have(made(comm) | rootless(comm), MPI.{handler})
assert file_of(comm) == MPI.{of_files}
comm.Set_errhandler(mine)
all_have(made(comm), {after})
all_have(rootless(comm), MPI.{handler})
MPI.FILE_NULL.Set_errhandler(mine)
assert file_of(comm) == {after}
print("well")
"""
    assert launch(2, "-c", program).stdout.count("well") == 2


@pytest.mark.slow
def test_the_handler_of_a_parent_is_called_for_its_duplicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MPI4PY_RC_ERRORS", "default")
    program = f"""{MADE}
comm.Set_errhandler(mine)
dup = comm.Dup()
try:
    dup.Send(b"", 2)
except MPI.Exception as exc:
    assert exc.Get_error_class() == MPI.ERR_RANK
assert calls == [(dup, MPI.ERR_RANK)], calls
print("well")
"""
    assert launch(2, "-c", program).stdout.count("well") == 2


@pytest.mark.slow
def test_an_error_of_a_part_of_a_communicator_ends_the_job_where_errors_are_fatal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MPI4PY_RC_ERRORS", "fatal")
    for name, title in (("part", "part"), ("", "the communicator of 2")):
        program = f"""{MADE}
part = comm.Split(0)
part.name = {name!r}
part.Send(b"", 2)
"""
        job = launch(2, "-c", program, expect=constants.ERR_RANK)
        assert f"the error handler of {title} ends the job" in job.stderr


@pytest.mark.slow
def test_windows_and_files_call_no_function_of_an_attribute() -> None:
    program = f"""{MADE}
seen = []
def copied(where, keyval, value):
    seen.append(where)
    raise KeyError("not to be called")
keyval = MPI.Comm.Create_keyval(copied, lambda where, keyval, value: seen.append(where))
for each in (comm, MPI.COMM_SELF):
    each.Set_attr(keyval, 1)
for win in rootless(comm).values():
    if isinstance(win, MPI.Win):
        win.Free()
file_of(comm)
assert not seen, seen
for each in (comm, MPI.COMM_SELF):
    each.Delete_attr(keyval)
print("well")
"""
    assert launch(2, "-c", program).stdout.count("well") == 2


@pytest.mark.slow
def test_the_window_of_a_file_ends_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default errors of windows are fatal, and those of files are not."""
    monkeypatch.setenv("MPI4PY_RC_ERRORS", "default")
    program = f"""{MADE}
path = comm.bcast(path)
mode = MPI.MODE_CREATE | MPI.MODE_DELETE_ON_CLOSE | MPI.MODE_RDWR
file = MPI.File.Open(comm, path, mode)
try:
    file.Set_size(8) if comm.rank else file.Set_atomicity(True)
except MPI.Exception:
    print("well")
comm.Barrier()
os.unlink(path) if comm.rank == 0 else None
"""
    assert launch(2, "-c", program).stdout.count("well") == 2


@pytest.mark.slow
def test_the_handler_of_the_null_file_is_that_of_open_and_delete() -> None:
    program = f"""{MADE}{FAILS}
handler = MPI.File.Create_errhandler(lambda where, code: calls.append((where, code)))
MPI.FILE_NULL.Set_errhandler(handler)
for call, *where in ((MPI.File.Open, comm, path), (MPI.File.Delete, path)):
    assert fails(call, *where).Get_error_class() == MPI.ERR_NO_SUCH_FILE
    assert calls == [(MPI.FILE_NULL, MPI.ERR_NO_SUCH_FILE)], (call, calls)
    calls.clear()
MPI.FILE_NULL.Set_errhandler(MPI.ERRORS_ARE_FATAL)
MPI.File.Delete(path)
"""
    job = launch(1, "-c", program, expect=constants.ERR_NO_SUCH_FILE)
    assert "the error handler of File ends the job" in job.stderr
