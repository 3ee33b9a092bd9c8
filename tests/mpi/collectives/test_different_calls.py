# SPDX-License-Identifier: Apache-2.0
"""Ranks that call different collectives: an error that names both calls, where they would wait."""

import re

import pytest

from ..launcher.jobs import launch

_BEGIN = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
z = np.zeros
"""
_PRINTS_ITS_ERROR = """
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
    print(error, flush=True)
    raise SystemExit(1)
"""


@pytest.mark.parametrize(
    ("mine", "theirs", "names"),
    [
        ("comm.gather(1)", "comm.bcast(None)", ("gather", "bcast")),
        ("comm.allreduce(1)", "comm.barrier()", ("allreduce", "Barrier")),
        ("comm.Allreduce(z(9999), z(9999))", "comm.allgather(3)", ("Allreduce", "allgather")),
        ("comm.Gather(z(1), z(2))", "comm.bcast(None)", ("Gather", "bcast")),
        ("comm.Ibcast(z(50), 1).Wait()", "comm.scatter(None)", ("Ibcast", "scatter")),
    ],
)
def test_two_calls_that_wait_for_each_other(mine: str, theirs: str, names: tuple[str, str]) -> None:
    program = f"""{_BEGIN}
try:
    {mine} if rank == 0 else {theirs}
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
    print(error)
assert comm.sendrecv(rank, 1 - rank, source=1 - rank) == 1 - rank
"""
    said = launch(2, "-c", program).stdout
    for each, (own, other) in enumerate((names, names[::-1])):
        text = f"Comm.{own} of MPI_COMM_WORLD: rank {1 - each} is in another collective, {other}; "
        assert text in said, said


def test_barriers_that_are_other_calls_are_not_taken_for_one_another() -> None:
    """All of them are entries of lines, and no rank has to wait."""
    program = f"""{_BEGIN}
win = MPI.Win.Allocate(8, comm=comm)
win.Set_name("table")
for mine, theirs in (win.Fence, win.Free), (win.Free, win.Fence):
    try:
        mine() if rank == 0 else theirs()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
        print(error)
    comm.Barrier()
win.Fence()
win.Free()
"""
    said = launch(2, "-c", program).stdout
    for own, other in ("Fence", "Free"), ("Free", "Fence"):
        for rank in range(2):
            text = rf"Win\.{own} of table: rank {rank} is in another collective, .*Win\.{other}"
            assert re.search(text, said), said


@pytest.mark.parametrize(
    "call", ["comm.bcast(1, root=1)", "comm.Bcast(z(50), 1)", "comm.Ibcast(z(50), 1).Wait()"]
)
def test_a_message_of_another_collective_is_not_taken_for_this_one(call: str) -> None:
    program = f"""{_BEGIN}
if rank == 1:
    comm.gather("wrong", root=0)
    comm.recv(source=0)
else:
    try:
        {call}
    except MPI.Exception as error:
        assert "rank 1 is in another collective, gather; " in str(error), error
        print("well")
    comm.send(None, 1)
"""
    assert launch(2, "-c", program).stdout == "well\n"


def test_large_communicators_and_intercommunicators_report_it() -> None:
    program = f"""{_BEGIN}
half = comm.Split(rank % 2).Create_intercomm(0, comm, 1 - rank % 2)
for each in comm, half:
    try:
        each.allgather(1) if rank == 5 else each.alltoall([1] * each.Get_size())
    except MPI.Exception as error:
        print("well" if "another collective, all" in str(error) else error)
    request = comm.Ibarrier()
    while not request.Test():
        pass
"""
    assert "well" in launch(18, "-c", program).stdout


def test_ranks_that_name_different_roots() -> None:
    program = f"""{_BEGIN}
handled = []
comm.Set_errhandler(MPI.Comm.Create_errhandler(lambda where, code: handled.append(code)))
holes = [z(5), 1, MPI.DOUBLE.Create_vector(2, 1, 2).Commit()]
for name, own, call in (
    ("gather", True, lambda: comm.gather(1, root=rank)),
    ("bcast", False, lambda: comm.bcast(1, root=1 - rank)),
    ("scatter", False, lambda: comm.scatter(None, root=1 - rank)),
    ("Gather", True, lambda: comm.Gather(z(1), z(2), root=rank)),
    ("Bcast", False, lambda: comm.Bcast(z(5), 1 - rank)),
    ("Bcast", False, lambda: comm.Bcast(holes, 1 - rank)),
    ("Reduce", True, lambda: comm.Reduce(z(5), z(5), root=rank)),
    ("Gatherv", True, lambda: comm.Gatherv(z(1), [z(2), [1, 1]], root=rank)),
    ("Iscatter", False, lambda: comm.Iscatter(None, z(5), root=1 - rank).Wait()),
):
    mine = rank if own else 1 - rank
    try:
        call()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_ROOT, error
        at = f"Comm.{{name}} of MPI_COMM_WORLD: rank {{1 - rank}} names the root {{1 - mine}}, "
        assert f"{{at}}and this rank the root {{mine}}; " in str(error), error
        assert handled == [MPI.ERR_ROOT], "its error handler was called"
        handled.clear()
        print("well")
    assert comm.sendrecv(rank, 1 - rank, source=1 - rank) == 1 - rank
"""
    assert launch(2, "-c", program).stdout.count("well") == 18


def test_large_data_of_different_roots_get_an_error_that_names_the_roots() -> None:
    """Its parts have other lengths, which a rank may find before it finds the root."""
    program = f"""{_BEGIN}
try:
    comm.Bcast(z(100_000), rank % 2)
except MPI.Exception as error:
    print("well" if "root" in str(error) else error)
"""
    assert launch(3, "-c", program).stdout == "well\n" * 3


def test_the_error_goes_to_the_handler_of_the_communicator() -> None:
    program = f"""{_BEGIN}
half, handled = comm.Dup(), []
half.Set_errhandler(MPI.Comm.Create_errhandler(lambda where, code: handled.append((where, code))))
for call in (lambda: half.gather(1)), (lambda: half.Gather(z(1), z(2))):
    try:
        call() if rank == 0 else half.bcast(None)
    except MPI.Exception:
        pass
    assert handled == [(half, MPI.ERR_TRUNCATE)], handled
    handled.clear()
    assert comm.sendrecv(rank, 1 - rank, source=1 - rank) == 1 - rank
print("well")
"""
    assert launch(2, "-c", program).stdout.count("well") == 2


def test_equal_calls_of_late_ranks_succeed() -> None:
    program = f"""{_BEGIN}
import time
calls = [
    lambda: comm.gather(rank), lambda: comm.allreduce(rank), lambda: comm.Barrier(),
    lambda: comm.Allreduce(z(9999), z(9999)), lambda: comm.bcast(rank, root=1),
    lambda: MPI.Request.Waitall([comm.Ibarrier(), comm.Ibcast(z(5), 2)][::-1]),
]
for i, call in enumerate(calls):
    if rank == i % 3:
        time.sleep(0.08)
    call()
print("well")
"""
    assert launch(3, "-c", program).stdout.count("well") == 3


@pytest.mark.parametrize(
    "wrong",
    [
        "comm.Bcast(None, 0)",
        "comm.Gather(z(1), z(5), 1)",
        "comm.Iallreduce(z(1), z(2))",
        "comm.Allgatherv(z(1), 7)",
        "comm.Reduce_init(z(1), z(1), None, 1)",
    ],
)
def test_a_call_of_one_rank_that_raises_for_its_arguments_has_not_begun(wrong: str) -> None:
    program = f"""{_BEGIN}
if rank == 1:
    try:
        {wrong}
    except (TypeError, ValueError, MPI.Exception):
        pass
    else:
        raise SystemExit("it did not raise")
for length in 1, 50, 5000:
    for root in 0, 2, 1:
        data = z(length) + (length if rank == root else 0)
        if rank == root:
            comm.Send(z(1), (root + 1) % 3)  # the last one waits for the root
        elif rank == (root + 1) % 3:
            comm.Recv(z(1), root)
        comm.Bcast(data, root)
        comm.Ibcast(data, root).Wait()
        assert (data == length).all()
print("well")
"""
    assert launch(3, "-c", program).stdout == "well\n" * 3


@pytest.mark.parametrize("wrong", ["comm.Bcast(readonly, 0)", "comm.Bcast(z({n}), 99)"])
@pytest.mark.parametrize("n", [4, 50, 50_000])
def test_a_rank_without_a_call_that_the_others_have_left(wrong: str, n: int) -> None:
    """The others are one call ahead, and wait there; the root left the missing one at once."""
    program = f"""{_BEGIN}
readonly = z({n})
readonly.flags.writeable = False
try:
    {wrong.format(n=n)} if rank == 1 else comm.Bcast(z({n}), 0)
except (BufferError, ValueError, MPI.Exception):
    print("not begun")
try:
    comm.allreduce(1)
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_TRUNCATE, error
    print(error)
    raise SystemExit(1)
"""
    done = launch(4, "-c", program, expect=1)
    assert "not begun" in done.stdout
    text = r"Comm\.(allreduce|Bcast) of MPI_COMM_WORLD: rank \d is in another collective, "
    assert re.search(text + "(allreduce|Bcast); all ranks begin", done.stdout), done.stdout


@pytest.mark.parametrize("call", ["bcast(1, ", "Bcast(z(9999), ", "Bcast(z(5), "])
def test_a_rank_that_names_a_root_which_has_left_the_call(call: str) -> None:
    program = f"""{_BEGIN}
try:
    comm.{call} 1 if rank == 2 else 0)
except MPI.Exception as error:
    if rank == 2:  # the others may wait as well, for a rank that takes a large message
        print(error)
comm.Recv(z(1), 2) if rank < 2 else [comm.Send(z(1), each) for each in (0, 1)]
"""
    said = launch(3, "-c", program).stdout
    by_an_answer = "names the root 0, and this rank the root 1; all ranks name the same one"
    by_a_line = (
        "MPI_ERR_TRUNCATE: message truncated: Comm.Bcast of MPI_COMM_WORLD: rank 1 is in another"
    )
    assert (
        f"MPI_ERR_ROOT: invalid root: Comm.{call[:5]} of MPI_COMM_WORLD" in said
        or by_a_line in said
    )
    assert by_an_answer in said or "z(5)" in call, said


@pytest.mark.parametrize(
    ("call", "at"),
    [
        ("comm.Dup()", "Comm.Dup of MPI_COMM_WORLD"),
        ("comm.Idup()[1].Wait()", "Comm.Idup of MPI_COMM_WORLD"),
        ("comm.Create(comm.group)", "Comm.Create of MPI_COMM_WORLD"),
        ("comm.Create_cart([3])", "Comm.Create_cart of MPI_COMM_WORLD"),
        ("MPI.Win.Allocate(8, comm=comm)", "Win.Allocate of MPI_COMM_WORLD"),
        ("MPI.File.Open(comm, '/dev/null')", "File.Open of '/dev/null'"),
    ],
)
def test_a_rank_that_is_behind_gets_no_object_that_the_others_do_not_have(
    call: str, at: str
) -> None:
    """The first rank, which decides for the others, waits for them as well."""
    program = f"""{_BEGIN}
try:
    comm.Gather(z(1), z(1 if rank == 0 else 3))
except ValueError:
    print("not begun")
try:
    {call}
{_PRINTS_ITS_ERROR}"""
    done = launch(3, "-c", program, expect=1)
    assert "not begun" in done.stdout
    text = rf"{re.escape(at)}: rank [12] is in another collective, Gather; all ranks begin"
    assert re.search(text, done.stdout), done.stdout


def test_a_leader_that_is_behind_gets_no_intercommunicator() -> None:
    program = f"""{_BEGIN}
half = comm.Split(rank < 3)
if rank < 3:
    try:
        half.Gather(z(1), z(1 if rank == 0 else 3))
    except ValueError:
        print("not begun")
try:
    half.Create_intercomm(0, comm, 3 if rank < 3 else 0)
{_PRINTS_ITS_ERROR}"""
    done = launch(4, "-c", program, expect=1)
    assert "not begun" in done.stdout
    text = r"Comm\.Create_intercomm of .*: rank [12] is in another collective, Gather; all ranks"
    assert re.search(text, done.stdout), done.stdout


def test_a_rank_that_is_behind_gets_no_duplicate_of_an_intercommunicator() -> None:
    """Its first rank waits for the other group, whose calls show that it is behind."""
    program = f"""{_BEGIN}
inter = comm.Split(rank % 2).Create_intercomm(0, comm, 1 - rank % 2)
root = 0 if rank % 2 else MPI.PROC_NULL if rank else MPI.ROOT
try:
    inter.Gather(z(1), z(1 if rank == 0 else 2), root)
except ValueError:
    print("not begun")
try:
    inter.Idup()[1].Wait()
{_PRINTS_ITS_ERROR}"""
    done = launch(4, "-c", program, expect=1)
    assert "not begun" in done.stdout
    text = "Comm.Idup of the intercommunicator of 2 and 2: rank 0 is in another collective, Gather"
    assert text in done.stdout
