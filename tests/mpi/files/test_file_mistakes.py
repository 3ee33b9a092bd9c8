# SPDX-License-Identifier: Apache-2.0
"""Mistakes with files: each has its error class, names its call, and leaves the file usable."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from shmnd.mpi import MPI

RDWR: Final = MPI.MODE_RDWR | MPI.MODE_CREATE
DOWN: Final = MPI.BYTE.Create_hindexed([1, 1], [4, 0]).Commit()
TWICE: Final = MPI.BYTE.Create_hindexed([2, 2], [0, 1]).Commit()
LAST_TWICE: Final = MPI.BYTE.Create_hindexed([4, 2], [0, 3]).Commit()
BEFORE: Final = MPI.BYTE.Create_hindexed([1], [-1]).Commit()
NO_EXTENT: Final = MPI.INT.Create_resized(0, 0).Commit()
LOOSE: Final = MPI.INT.Create_contiguous(2)
EMPTY: Final = MPI.INT.Create_contiguous(0).Commit()

OF_VIEWS: Final[list[tuple[int, str, tuple[Any, ...]]]] = [
    (MPI.ERR_ARG, "displacement of -1", (-1,)),
    (MPI.ERR_ARG, "displacement of", (1 << 63,)),
    (MPI.ERR_ARG, "MODE_SEQUENTIAL", (MPI.DISPLACEMENT_CURRENT,)),
    (MPI.ERR_TYPE, "null", (0, MPI.DATATYPE_NULL)),
    (MPI.ERR_TYPE, "Commit first", (0, LOOSE)),
    (MPI.ERR_TYPE, "Commit first", (0, MPI.INT, LOOSE)),
    (MPI.ERR_TYPE, "no bytes", (0, EMPTY)),
    (MPI.ERR_TYPE, "multiple of the 8", (0, MPI.DOUBLE, MPI.INT)),
    (MPI.ERR_TYPE, "ascending order", (0, MPI.BYTE, DOWN)),
    (MPI.ERR_TYPE, "overlap", (0, MPI.BYTE, TWICE)),
    (MPI.ERR_TYPE, "overlap", (0, MPI.BYTE, LAST_TWICE)),
    (MPI.ERR_TYPE, "before its address", (0, MPI.BYTE, BEFORE)),
    (MPI.ERR_TYPE, "extent of filetype is 0", (0, MPI.BYTE, NO_EXTENT)),
    (MPI.ERR_UNSUPPORTED_DATAREP, "Pack_external", (0, MPI.BYTE, MPI.BYTE, "external32")),
]
CALLS: Final[list[tuple[int, str, Callable[[Any], object]]]] = [
    (MPI.ERR_ARG, "offset of -1", lambda file: file.Read_at(-1, bytearray(1))),
    (MPI.ERR_ARG, r"2\*\*62", lambda file: file.Write_at(1 << 62, b"12")),
    (MPI.ERR_ARG, r"2\*\*62", lambda file: file.Get_byte_offset(1 << 70)),
    (MPI.ERR_ARG, "would be -1", lambda file: file.Seek(-1)),
    (MPI.ERR_ARG, "would be -1", lambda file: file.Seek_shared(-1, MPI.SEEK_CUR)),
    (MPI.ERR_ARG, "whence 5", lambda file: file.Seek(0, 5)),
    (MPI.ERR_ARG, "size of -1", lambda file: file.Set_size(-1)),
    (MPI.ERR_ARG, "size of -1", lambda file: file.Preallocate(-1)),
    (MPI.ERR_OTHER, "Read_all_begin first", lambda file: file.Read_all_end(bytearray(1))),
    (MPI.ERR_TYPE, "not committed", lambda file: file.Read([bytearray(8), 1, LOOSE])),
]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Any]:
    opened = MPI.File.Open(MPI.COMM_SELF, tmp_path / "file", RDWR)
    opened.Write(b"content")
    yield opened
    opened.Close()


def usable(file: Any) -> bool:
    found = bytearray(7)
    file.Read_at(0, found)
    return found == b"content" and file.Get_position() == 7


@pytest.mark.parametrize(("error", "words", "arguments"), OF_VIEWS)
def test_a_view_that_cannot_be(
    file: Any, error: int, words: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(MPI.Exception, match=rf"Set_view.*{words}") as caught:
        file.Set_view(*arguments)
    assert caught.value.Get_error_class() == error
    assert usable(file)


@pytest.mark.parametrize(("error", "words", "call"), CALLS)
def test_a_call_that_cannot_be(
    file: Any, error: int, words: str, call: Callable[[Any], object]
) -> None:
    with pytest.raises(MPI.Exception, match=words) as caught:
        call(file)
    assert caught.value.Get_error_class() == error
    assert usable(file)


def test_messages_that_are_not_memory(file: Any) -> None:
    for wrong in (None, "text", 5):
        with pytest.raises((TypeError, BufferError)):
            file.Write(wrong)
    with pytest.raises((BufferError, TypeError)):
        file.Read(b"read-only")
    with pytest.raises(TypeError):
        file.Seek("begin")
    with pytest.raises(TypeError, match="is not a datatype"):
        file.Set_view(0, "d")
    with pytest.raises(TypeError, match=r"File\.Get_type_extent: None is not a datatype"):
        file.Get_type_extent(None)
    assert usable(file)


def test_hints_that_are_none(file: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"File\.Set_info: info 5 is not an Info"):
        file.Set_info(5)
    with pytest.raises(TypeError, match=r"File\.Set_view: info \{\} is not an Info"):
        file.Set_view(info={})
    with pytest.raises(TypeError, match=r"File\.Open: info 'x' is not an Info"):
        MPI.File.Open(MPI.COMM_SELF, tmp_path / "other", RDWR, "x")
    assert not (tmp_path / "other").exists()
    assert usable(file)


def test_a_message_that_is_not_a_whole_number_of_etypes(file: Any) -> None:
    file.Set_view(0, MPI.DOUBLE)
    with pytest.raises(MPI.Exception, match=r"12 bytes; expected a multiple of the 8") as caught:
        file.Write(bytearray(12))
    assert caught.value.Get_error_class() == MPI.ERR_TYPE
    file.Set_view(0)
    file.Seek(7)
    assert usable(file)


def test_access_that_the_mode_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    reads = MPI.File.Open(MPI.COMM_SELF, path)
    writes = MPI.File.Open(MPI.COMM_SELF, path, MPI.MODE_WRONLY)
    calls: list[tuple[int, Callable[[], object]]] = [
        (MPI.ERR_READ_ONLY, lambda: reads.Write(b"1")),
        (MPI.ERR_READ_ONLY, lambda: reads.Write_ordered(b"1")),
        (MPI.ERR_READ_ONLY, lambda: reads.Set_size(1)),
        (MPI.ERR_ACCESS, lambda: writes.Iread_shared(bytearray(1))),
    ]
    for error, call in calls:
        with pytest.raises(MPI.Exception, match="the file is open for") as caught:
            call()
        assert caught.value.Get_error_class() == error
    assert (reads.Get_position_shared(), writes.Get_position_shared()) == (0, 0)
    reads.Close()
    writes.Close()


@pytest.mark.parametrize(
    ("error", "amode", "words"),
    [
        (MPI.ERR_AMODE, 0, "expected one of"),
        (MPI.ERR_AMODE, MPI.MODE_RDWR | MPI.MODE_RDONLY, "expected one of"),
        (MPI.ERR_AMODE, MPI.MODE_RDONLY | MPI.MODE_CREATE, "cannot be combined"),
        (MPI.ERR_AMODE, MPI.MODE_RDWR | MPI.MODE_SEQUENTIAL, "cannot be combined"),
        (MPI.ERR_NO_SUCH_FILE, MPI.MODE_RDWR, "No such file"),
    ],
)
def test_modes_that_cannot_be(tmp_path: Path, error: int, amode: int, words: str) -> None:
    with pytest.raises(MPI.Exception, match=words) as caught:
        MPI.File.Open(MPI.COMM_SELF, tmp_path / "none", amode)
    assert caught.value.Get_error_class() == error
    assert not (tmp_path / "none").exists()


def test_paths_that_are_not_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, error in (
        (tmp_path, MPI.ERR_BAD_FILE),
        (tmp_path / "file" / "below", MPI.ERR_BAD_FILE),
        (tmp_path / ("n" * 300), MPI.ERR_BAD_FILE),
    ):
        with pytest.raises(MPI.Exception, match=r"File\.Open") as caught:
            MPI.File.Open(MPI.COMM_SELF, path, RDWR)
        assert caught.value.Get_error_class() == error
    for comm in (None, 3):
        with pytest.raises(TypeError, match="not a communicator"):
            MPI.File.Open(comm, tmp_path / "file", RDWR)
    with pytest.raises(MPI.Exception, match="null"):
        MPI.File.Open(MPI.COMM_NULL, tmp_path / "file", RDWR)


def test_a_full_device_is_an_error_with_the_written_count() -> None:
    full = MPI.File.Open(MPI.COMM_SELF, "/dev/full", MPI.MODE_WRONLY)
    words = r"File\.Write of '/dev/full': No space left on device; after 0 of 1"
    with pytest.raises(MPI.Exception, match=words) as caught:
        full.Write(b"1")
    assert caught.value.Get_error_class() == MPI.ERR_NO_SPACE
    full.Close()


def test_a_closed_file_is_null(tmp_path: Path) -> None:
    file = MPI.File.Open(MPI.COMM_SELF, tmp_path / "file", RDWR)
    other = MPI.File(file)
    file.Close()
    assert file == MPI.FILE_NULL
    for call in ("Get_size", "Get_view", "Sync", "Close", "Get_position", "Get_atomicity"):
        with pytest.raises(MPI.Exception, match=f"{call}: the file is null") as caught:
            getattr(file, call)()
        assert caught.value.Get_error_class() == MPI.ERR_FILE
    with pytest.raises(MPI.Exception, match="Write: the file is null"):
        file.Write(b"1")
    for call in ("Get_size", "Close", "Get_position_shared"):  # a second handle to the same file
        with pytest.raises(MPI.Exception, match=f"{call}: .* is closed"):
            getattr(other, call)()


def test_a_split_collective_excludes_others_until_its_end(file: Any) -> None:
    file.Read_at_all_begin(0, bytearray(3))
    calls: list[Callable[[], object]] = [
        lambda: file.Read_all_begin(bytearray(1)),
        lambda: file.Read_at_all_begin(0, bytearray(1)),
        lambda: file.Set_view(0),
        lambda: file.Sync(),
        lambda: file.Close(),
    ]
    for call in calls:
        with pytest.raises(MPI.Exception, match="call Read_at_all_end first") as caught:
            call()
        assert caught.value.Get_error_class() == MPI.ERR_OTHER
    file.Read_at_all_end(bytearray(3))
    assert usable(file)


def test_errors_go_to_the_handler_of_the_file(file: Any, tmp_path: Path) -> None:
    seen: list[tuple[Any, int]] = []
    handler = MPI.File.Create_errhandler(lambda where, code: seen.append((where, code)))
    file.Set_errhandler(handler)
    with pytest.raises(MPI.Exception):
        file.Seek(-1)
    assert seen == [(file, MPI.ERR_ARG)]
    MPI.FILE_NULL.Set_errhandler(handler)
    try:
        with pytest.raises(MPI.Exception):
            MPI.File.Open(MPI.COMM_SELF, tmp_path / "none")
        assert seen[1] == (MPI.FILE_NULL, MPI.ERR_NO_SUCH_FILE)
    finally:
        MPI.FILE_NULL.Set_errhandler(MPI.ERRORS_RETURN)
        handler.Free()


@pytest.mark.parametrize(
    ("limit", "call", "words"),
    [
        (resource.RLIMIT_NOFILE, "open", "which ulimit -n raises"),
        (resource.RLIMIT_FSIZE, "write", "the limit is ulimit -f"),
        (resource.RLIMIT_FSIZE, "set_size", "the limit is ulimit -f"),
    ],
)
def test_a_limit_that_is_met_is_named(tmp_path: Path, limit: int, call: str, words: str) -> None:
    path, amode = str(tmp_path / "file"), MPI.MODE_CREATE | MPI.MODE_RDWR
    file = MPI.File.Open(MPI.COMM_SELF, path, amode)
    calls = {
        "open": lambda: MPI.File.Open(MPI.COMM_SELF, path, amode),
        "write": lambda: file.Write_at(1 << 20, b"0"),
        "set_size": lambda: file.Set_size(1 << 20),
    }
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (3 if call == "open" else 1 << 16, before[1]))
    try:
        with pytest.raises(MPI.Exception, match=words):
            calls[call]()
    finally:
        resource.setrlimit(limit, before)
    file.Close()
