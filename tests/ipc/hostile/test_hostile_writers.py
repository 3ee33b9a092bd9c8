# SPDX-License-Identifier: Apache-2.0
"""Writers of a blackboard, and records of some, that no program of this library makes."""

import asyncio
import os
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

import shmnd
from shmnd import ipc
from shmnd.directory import Directory
from shmnd.ipc.common.processes import own_process
from shmnd.status import NdError

PATIENCE = 60.0
PLACE = own_process()._asdict()
GONE = {**PLACE, "number": (1 << 22) + 1}


@pytest.fixture
def reader() -> Iterator[ipc.BlackboardReader]:
    """Of a value of which each reading finds that the writer was faster."""
    with ipc.Blackboard("b", {"a": "f8"}) as board, ipc.BlackboardReader("b") as made:
        board["a"] = 5
        assert made["a"] == 5
        offset = board._keys["a"].offset
        memoryview(board._map)[offset : offset + 16] = struct.pack("QQ", 7, 1 << 40)
        yield made


def test_a_value_that_never_settles_is_named(reader: ipc.BlackboardReader) -> None:
    text = rf"'a' of blackboard 'b' was written anew by process {os.getpid()} during each"
    calls: list[Any] = [
        lambda: reader["a"],
        lambda: reader.wait("a", timeout=PATIENCE),
        lambda: asyncio.run(reader.await_change("a", timeout=PATIENCE)),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=text):
            call()


def test_a_wait_reads_no_longer_than_its_time_out(
    reader: ipc.BlackboardReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = reader._board
    assert board is not None
    longest: list[float] = []
    words = board.words

    class Noting:
        def read_cell(self, offset: int, value: Any, seconds: float) -> int:
            longest.append(seconds)
            while seconds > 0 and time.monotonic() < end:
                pass
            return words.read_cell(offset, value, seconds)

        def __getattr__(self, name: str) -> Any:
            return getattr(words, name)

    monkeypatch.setattr(board, "words", Noting())
    calls: list[Any] = [
        lambda: reader.wait("a", timeout=0.05),
        lambda: asyncio.run(reader.await_change("a", timeout=0.05)),
    ]
    for call in calls:
        end = time.monotonic() + 0.1
        with pytest.raises(TimeoutError, match="'a' of 'b' was written anew during each reading"):
            call()
    assert len(longest) >= 2
    assert max(longest) <= 0.05


@pytest.mark.parametrize(
    "data",
    [
        {},
        PLACE,
        GONE,
        {**PLACE, "fd": 0, "dev": 0, "ino": 0, "room_fd": 0, "room_dev": 0, "room_ino": 0},
        {"space": "here", "number": None, "fd": [], "room_fd": {}},
    ],
    ids=["empty", "no memory", "gone", "other memory", "nonsense"],
)
def test_a_record_of_no_writer_blocks_no_name(data: dict[str, Any]) -> None:
    with shmnd.open_adapter() as adapter:
        announced = Directory(adapter).announce("ipc.blackboard", "b", {"role": "writer", **data})
        with announced, ipc.Blackboard("b", {"a": "f8"}) as board:
            with ipc.BlackboardReader("b") as reader:
                board["a"] = 5
                assert reader.wait("a", timeout=PATIENCE) == 5
                assert reader.writer == os.getpid()
            with pytest.raises(OSError, match=f"process {os.getpid()} writes the blackboard 'b'"):
                ipc.Blackboard("b")


def test_a_record_that_leads_to_other_memory_hides_no_writer() -> None:
    fd = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    try:
        found = os.fstat(fd)
        data: dict[str, Any] = {"role": "writer", **PLACE}
        for which in ("", "room_"):
            data |= {f"{which}fd": fd, f"{which}dev": found.st_dev, f"{which}ino": found.st_ino}
        with shmnd.open_adapter() as adapter:
            announced = Directory(adapter).announce("ipc.blackboard", "b", data)
            with announced:
                with ipc.Blackboard("b", {"a": "f8"}) as board, ipc.BlackboardReader("b") as reader:
                    board["a"] = 5
                    assert reader["a"] == 5
                    board.close()
                    assert reader.writer is None
                    assert reader["a"] == 5
                with pytest.raises(NdError, match="announced no blackboard"):
                    ipc.BlackboardReader("b")
    finally:
        os.close(fd)


@pytest.mark.parametrize("kind", ["queue", "service", "event"])
@pytest.mark.parametrize(
    "data", [{}, GONE, {"space": 1.5, "number": "x"}], ids=["empty", "gone", "nonsense"]
)
def test_a_record_without_a_place_blocks_no_name(kind: str, data: dict[str, Any]) -> None:
    make: dict[str, Any] = {
        "queue": lambda: ipc.Queue(4, name="n"),
        "service": lambda: ipc.Client("n"),
        "event": lambda: ipc.Notifier("n"),
    }
    data = {**data, "fd": 3, "dev": 1, "ino": 2}
    with shmnd.open_adapter() as adapter, Directory(adapter).announce(f"ipc.{kind}", "n", data):
        make[kind]().close()
