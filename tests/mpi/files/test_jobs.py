# SPDX-License-Identifier: Apache-2.0
"""Files of several ranks: parts of one array, the shared pointer, atomic calls, agreement."""

from pathlib import Path
from typing import Final

import numpy as np
import pytest

from mpi.launcher.jobs import launch

HEAD: Final = """
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
RDWR = MPI.MODE_RDWR | MPI.MODE_CREATE
path = sys.argv[1]
"""

BLOCKS: Final = """
file = MPI.File.Open(comm, path, RDWR)
rows = 12 * size
tile = MPI.INT.Create_subarray([rows, 30], [12, 30], [12 * rank, 0]).Commit()
file.Set_view(16, MPI.INT, tile)
mine = np.arange(12 * 30, dtype="i4") + 1000 * rank
file.Write_all(mine)
column = MPI.INT.Create_subarray([rows, 30], [rows, 30 // size], [0, 30 // size * rank]).Commit()
comm.Barrier()
file.Set_view(16, MPI.INT, column)
got = np.empty((rows, 30 // size), "i4")
file.Read_all(got)
whole = np.concatenate([np.arange(360, dtype="i4") + 1000 * each for each in range(size)])
width = 30 // size
assert (got == whole.reshape(rows, 30)[:, width * rank : width * (rank + 1)]).all()
file.Close()
"""

SHARED: Final = """
file = MPI.File.Open(comm, path, RDWR)
file.Set_view(0, MPI.INT)
for turn in range(200):
    file.Write_shared(np.full(1 + turn % 3, rank * 1000 + turn, "i4"))
comm.Barrier()
end = size * sum(1 + turn % 3 for turn in range(200))
assert file.Get_position_shared() == end
comm.Barrier()
file.Write_ordered(np.full(rank, 7000 + rank, "i4"))
file.Write_ordered_begin(np.full(rank, 8000 + rank, "i4"))
file.Write_ordered_end(np.full(rank, 8000 + rank, "i4"))
assert file.Get_position_shared() == end + size * (size - 1)
file.Close()
"""

ATOMIC: Final = """
file = MPI.File.Open(comm, path, RDWR)
file.Set_atomicity(True)
assert file.atomicity
other = MPI.BYTE.Create_vector(500, 100, 150).Commit()
file.Set_view(0, MPI.BYTE, other)
comm.Barrier()
for turn in range(300):
    if rank:
        file.Write_at(0, np.full(50_000, rank, "u1"))
    else:
        got = np.zeros(50_000, "u1")
        status = MPI.Status()
        file.Read_at(0, got, status)
        values = set(got[: status.count].tolist())
        assert status.count in (0, 50_000) and len(values) <= 1, (status.count, values)
file.Close()
"""

AGREEMENT: Final = """
import os
def fails(call, error, words):
    try:
        call()
    except MPI.Exception as caught:
        assert caught.Get_error_class() == error, caught
        assert words in str(caught), caught
    else:
        raise AssertionError(words)

amode = MPI.MODE_RDWR if rank else MPI.MODE_RDONLY
open(path, "w").close()
comm.Barrier()
fails(lambda: MPI.File.Open(comm, path, amode), MPI.ERR_NOT_SAME, "the ranks have the modes")
other = f"{path}.{rank}"
open(other, "wb").close()
fails(lambda: MPI.File.Open(comm, other), MPI.ERR_NOT_SAME, "opened different files")
os.unlink(other)
fails(lambda: MPI.File.Open(comm, path + "none" * (rank == 1)), MPI.ERR_NO_SUCH_FILE, "No such")
fails(lambda: MPI.File.Open(comm, path + "none" * (rank == 0)), MPI.ERR_NO_SUCH_FILE, "No such")
file = MPI.File.Open(comm, path, RDWR)
fails(lambda: file.Set_size(rank), MPI.ERR_NOT_SAME, "the ranks name")
fails(lambda: file.Preallocate(rank), MPI.ERR_NOT_SAME, "the ranks name")
fails(lambda: file.Set_atomicity(rank == 0), MPI.ERR_NOT_SAME, "the ranks name")
fails(lambda: file.Seek_shared(rank), MPI.ERR_NOT_SAME, "the ranks name")
fails(lambda: file.Seek_shared(-1), MPI.ERR_ARG, "would be -1")
etype = MPI.INT if rank else MPI.DOUBLE
fails(lambda: file.Set_view(0, etype), MPI.ERR_NOT_SAME, "size of etype")
wrong = -1 if rank == 1 else 0
expected = (MPI.ERR_ARG, "displacement") if rank == 1 else (MPI.ERR_OTHER, "failed at rank 1")
fails(lambda: file.Set_view(wrong), *expected)
if rank == 1:
    try:
        file.Write_ordered(None)
    except TypeError:
        pass
    else:
        raise AssertionError("None was written")
else:
    file.Write_ordered(b"part")
comm.Barrier()
assert file.Get_position_shared() == 4 * (size - 1)
assert file.Get_view()[1] == MPI.BYTE
assert file.Get_size() == 4 * (size - 1)
file.Close()
"""

CANNOT_OPEN: Final = """
def opened(name, amode=RDWR, info=MPI.INFO_NULL):
    try:
        MPI.File.Open(comm, name, amode, info).Close()
    except (MPI.Exception, TypeError, ValueError) as error:
        return type(error).__name__, str(error)
    return "", ""

cases = [
    ("a\\0b", RDWR, 23, "embedded null byte"),
    ("a\\ud800", RDWR, 23, "surrogates not allowed"),
    (path, None, 16, f"it failed at rank {size - 1}: TypeError"),
    (None, RDWR, 16, f"it failed at rank {size - 1}: TypeError"),
]
assert (MPI.ERR_BAD_FILE, MPI.ERR_OTHER) == (23, 16)
for name, amode, code, words in cases:
    last = rank == size - 1
    kind, text = opened(name if last else path, amode if last else RDWR)
    if None in (name, amode) and last:
        assert kind == "TypeError", (kind, text)
    else:
        assert kind == "Exception" and words in text, (kind, text)
        assert text.startswith(MPI.Get_error_string(code)), text
    assert opened(path) == ("", "")
    kind, text = opened(name, amode)
    assert kind, (name, amode)
    kind, text = opened(path, info=5 if last else MPI.INFO_NULL)
    assert kind == ("TypeError" if last else "Exception"), (kind, text)
    assert comm.allgather(rank) == list(range(size))
for name, _, code, words in cases[:2]:
    try:
        MPI.File.Delete(name)
    except MPI.Exception as error:
        assert error.Get_error_class() == code and words in str(error)
    else:
        raise AssertionError(name)
"""

WRONG_AT_ONE: Final = """
file = MPI.File.Open(comm, path, RDWR)
last = rank == size - 1
calls = [
    lambda: file.Set_size("long" if last else 3),
    lambda: file.Preallocate(None if last else 3),
    lambda: file.Seek_shared(0.5 if last else 0),
    lambda: file.Seek_shared(0, "end" if last else MPI.SEEK_SET),
    lambda: file.Set_atomicity(np.zeros(2) if last else True),
    lambda: file.Set_view(0, "d" if last else MPI.DOUBLE),
    lambda: file.Set_view(0, MPI.BYTE, info=5 if last else MPI.INFO_NULL),
]
for number, call in enumerate(calls):
    try:
        call()
    except (TypeError, ValueError) as error:
        assert last, (number, error)
    except MPI.Exception as error:
        assert not last, (number, error)
        assert error.Get_error_class() == MPI.ERR_OTHER
        assert f"failed at rank {size - 1}" in str(error)
    else:
        raise AssertionError(number)
    assert comm.allgather(number) == [number] * size  # of another communicator than the file's
assert (file.Get_size(), file.atomicity, file.Get_view()[1]) == (0, False, MPI.BYTE)
file.Close()
"""

GONE: Final = """
import errno, os
open(path, "ab").close()
comm.Barrier()
before = os.listdir("/proc/self/fd")
status, last = os.fstat, rank == size - 1
def gone(descriptor):
    if os.readlink(f"/proc/self/fd/{descriptor}") == path:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    return status(descriptor)
if last:
    os.fstat = gone
for amode in (MPI.MODE_RDONLY, MPI.MODE_RDWR | MPI.MODE_APPEND):
    try:
        MPI.File.Open(comm, path, amode)
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_IO and "Stale file" in str(error), error
    else:
        raise AssertionError("it is open")
assert os.listdir("/proc/self/fd") == before
assert comm.allgather(rank) == list(range(size))
"""

COMPUTES: Final = """
import pathlib, time
file = MPI.File.Open(comm, path, RDWR)
comm.Barrier()
done = [pathlib.Path(f"{path}.{each}") for each in range(1, size)]
if rank == 0:
    until = time.monotonic() + 50
    while not all(each.exists() for each in done):  # without a call
        assert time.monotonic() < until, "a rank waited for one that computes"
        time.sleep(0.001)
else:
    for _ in range(20):
        file.Write_at_all(8 * rank, np.array([rank]))
        file.Write_shared(np.array([rank]))
        file.Iwrite_all(np.array([rank])).Wait()
        file.Read_at_all(8 * rank, np.array([0]))
        file.Sync()
    done[rank - 1].touch()
file.Close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_write_rows_and_read_columns(ranks: int, tmp_path: Path) -> None:
    launch(ranks, "-c", HEAD + BLOCKS, str(tmp_path / "file"))
    found = np.fromfile(tmp_path / "file", "i4", offset=16).reshape(ranks, 360)
    assert (found == np.arange(360) + 1000 * np.arange(ranks)[:, None]).all()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 5])
def test_no_part_of_the_shared_pointer_is_given_twice(ranks: int, tmp_path: Path) -> None:
    launch(ranks, "-c", HEAD + SHARED, str(tmp_path / "file"))
    found = np.fromfile(tmp_path / "file", "i4")
    ordered = [base + rank for base in (7000, 8000) for rank in range(ranks) for _ in range(rank)]
    assert found[-len(ordered) :].tolist() == ordered
    shared = found[: -len(ordered)]
    written = [turn for turn in range(200) for _ in range(1 + turn % 3)]
    for rank in range(ranks):  # what one rank writes lies in its order
        assert (shared[shared // 1000 == rank] % 1000).tolist() == written


@pytest.mark.slow
def test_no_atomic_call_sees_a_part_of_another_one(tmp_path: Path) -> None:
    launch(3, "-c", HEAD + ATOMIC, str(tmp_path / "file"))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_where_ranks_differ_all_have_an_error(ranks: int, tmp_path: Path) -> None:
    launch(ranks, "-c", HEAD + AGREEMENT, str(tmp_path / "file"))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
def test_what_one_rank_cannot_open_is_an_error_of_all(ranks: int, tmp_path: Path) -> None:
    launch(ranks, "-c", HEAD + CANNOT_OPEN, str(tmp_path / "file"))


@pytest.mark.slow
def test_an_argument_that_is_wrong_at_one_rank_is_an_error_of_all(tmp_path: Path) -> None:
    launch(3, "--timeout", "30", "-c", HEAD + WRONG_AT_ONE, str(tmp_path / "file"))


def test_a_file_that_is_gone_when_it_is_open_is_an_error_of_all(tmp_path: Path) -> None:
    """As on a network: the first call for an open file fails at one rank."""
    launch(2, "--timeout", "30", "-c", HEAD + GONE, str(tmp_path / "file"))


@pytest.mark.slow
def test_no_call_that_moves_data_waits_for_a_rank_that_computes(tmp_path: Path) -> None:
    launch(2, "-c", HEAD + COMPUTES, str(tmp_path / "file"))
