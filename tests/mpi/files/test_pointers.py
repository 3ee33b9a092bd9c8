# SPDX-License-Identifier: Apache-2.0
"""Opening, pointers, split collectives and sizes of files, in one rank."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shmnd.mpi import MPI

RDWR: Final = MPI.MODE_RDWR | MPI.MODE_CREATE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "file"
    found.write_bytes(bytes(range(100)))
    return found


@pytest.fixture
def file(path: Path) -> Iterator[Any]:
    opened = MPI.File.Open(MPI.COMM_SELF, path, RDWR)
    yield opened
    if opened:
        opened.Close()


def taken(read: Callable[..., Any], *arguments: Any) -> bytes:
    """What a call reads of five bytes."""
    buf = bytearray(5)
    status = MPI.Status()
    request = read(*arguments, buf)
    if request is not None:
        request.Wait(status)
        assert status.count == 5
    return bytes(buf)


def test_append_begins_at_the_end_and_may_seek_back(path: Path) -> None:
    file = MPI.File.Open(MPI.COMM_SELF, path, MPI.MODE_WRONLY | MPI.MODE_APPEND)
    assert (file.Get_position(), file.Get_position_shared()) == (100, 100)
    file.Write(b"end")
    file.Write_at(0, b"begin")
    file.Write_shared(b"E")
    file.Close()
    content = path.read_bytes()
    assert content[:5] == b"begin"
    assert content[100:] == b"End"


def test_the_two_pointers_of_a_rank_are_apart(file: Any) -> None:
    assert taken(file.Read) == bytes(range(5))
    assert taken(file.Read_shared) == bytes(range(5))
    assert taken(file.Iread) == bytes(range(5, 10))
    assert taken(file.Read_ordered) == bytes(range(5, 10))
    assert taken(file.Iread_shared) == bytes(range(10, 15))
    assert taken(file.Read_all) == bytes(range(10, 15))
    assert taken(file.Iread_at, 50) == bytes(range(50, 55))
    assert (file.Get_position(), file.Get_position_shared()) == (15, 15)
    file.Seek_shared(-10, MPI.SEEK_END)
    file.Seek(-5, MPI.SEEK_CUR)
    assert (file.Get_position(), file.Get_position_shared()) == (10, 90)
    file.Set_view(10)
    assert (file.Get_position(), file.Get_position_shared()) == (0, 0)


@pytest.mark.parametrize("kind", ["at_all", "all", "ordered"])
def test_split_collectives_end_with_the_status(file: Any, kind: str) -> None:
    offset = (20,) if kind == "at_all" else ()
    begin, end = getattr(file, f"Read_{kind}_begin"), getattr(file, f"Read_{kind}_end")
    buf, status = bytearray(200), MPI.Status()
    begin(*offset, buf)
    end(buf, status)
    first = 20 if offset else 0
    assert status.count == 100 - first
    assert buf[: 100 - first] == bytes(range(first, 100))
    getattr(file, f"Write_{kind}_begin")(*offset, b"words")
    getattr(file, f"Write_{kind}_end")(b"words", status)
    assert status.count == 5


def test_a_dropped_file_keeps_no_descriptor(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(20):
        file = MPI.File.Open(MPI.COMM_SELF, path)
        file.Read(bytearray(3))
        del file
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_file_that_is_deleted_on_close_is_gone(path: Path) -> None:
    with pytest.raises(MPI.Exception) as caught:
        MPI.File.Open(MPI.COMM_SELF, path, RDWR | MPI.MODE_EXCL | MPI.MODE_DELETE_ON_CLOSE)
    assert caught.value.Get_error_class() == MPI.ERR_FILE_EXISTS
    assert path.exists()
    MPI.File.Open(MPI.COMM_SELF, path, RDWR | MPI.MODE_DELETE_ON_CLOSE).Close()
    assert not path.exists()


def test_hints_stay_with_the_file(file: Any) -> None:
    hints = MPI.Info.Create({"access_style": "read_once"})
    file.Set_view(0, MPI.BYTE, info=hints)
    assert file.info["access_style"] == "read_once"
    file.Set_info(MPI.Info.Create({"cb_nodes": "2"}))
    assert file.info["cb_nodes"] == "2"


def test_preallocated_bytes_are_zeros_and_sizes_grow_and_shrink(file: Any, path: Path) -> None:
    file.Preallocate(50)
    assert file.size == 100
    file.Preallocate(4000)
    file.Sync()
    assert path.read_bytes() == bytes(range(100)) + bytes(3900)
    file.Set_size(7)
    assert path.read_bytes() == bytes(range(7))


def test_sequential_files_have_the_shared_pointer_alone(path: Path) -> None:
    file = MPI.File.Open(MPI.COMM_SELF, path, MPI.MODE_RDONLY | MPI.MODE_SEQUENTIAL)
    assert taken(file.Read_shared) == bytes(range(5))
    file.Set_view(MPI.DISPLACEMENT_CURRENT, MPI.BYTE)
    assert file.Get_view()[0] == 5
    assert taken(file.Read_ordered) == bytes(range(5, 10))
    calls: list[Callable[[], object]] = [
        lambda: file.Read(bytearray(1)),
        lambda: file.Read_at(0, bytearray(1)),
        lambda: file.Iread_all(bytearray(1)),
        lambda: file.Seek(0),
        lambda: file.Get_position(),
    ]
    for call in calls:
        with pytest.raises(MPI.Exception, match="MODE_SEQUENTIAL; use the calls of") as caught:
            call()
        assert caught.value.Get_error_class() == MPI.ERR_UNSUPPORTED_OPERATION
    file.Close()


def test_numpy_integers_are_offsets(file: Any) -> None:
    file.Seek(np.int64(7))
    assert taken(file.Read_at, np.uint8(3)) == bytes(range(3, 8))
    assert file.Get_byte_offset(np.int32(9)) == 9
    assert file.Get_position() == 7
