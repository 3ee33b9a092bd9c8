# SPDX-License-Identifier: Apache-2.0
"""Blackboards: the newest whole value, whatever happens to the writer."""

import asyncio
import mmap
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from ipc import queue_players
from shmnd import ipc
from shmnd.status import NdError

FORK = multiprocessing.get_context("fork")


@pytest.mark.parametrize("type_", ["f8", ">f8", "f4", "i8", "u8"])
def test_arrays_of_any_layout_are_written_whole(type_: str) -> None:
    numbers = np.arange(24).astype(type_)
    packed = np.zeros(6, [("gap", "u1"), ("value", type_)])["value"]
    packed[:] = numbers[3:9]
    assert not packed.flags.aligned
    frozen = numbers[:6].copy()
    frozen.flags.writeable = False
    for given in (numbers[:6], numbers[::4], numbers[5::-1], packed, frozen, frozen.view(Marked)):
        with ipc.Blackboard("b", {"row": (type_, 6)}) as board, ipc.BlackboardReader("b") as reader:
            board["row"] = given
            assert reader["row"].tolist() == given.tolist()
            assert type(reader["row"]) is np.ndarray
            with pytest.raises(ValueError, match="'row'"):
                board["row"] = np.zeros(7, type_)
            assert reader["row"].tolist() == board["row"].tolist() == given.tolist()


def test_errors_quote_long_keys_in_part() -> None:
    long = "k" * 5000
    with ipc.Blackboard("b", {long: "f8"}) as board, ipc.BlackboardReader("b") as reader:
        calls = (
            lambda: board[long + "x"],
            lambda: reader[long + "x"],
            lambda: reader[long],
            lambda: reader.wait(long, timeout=0),
            lambda: board.add(long, "f4"),
            lambda: board.__setitem__(long, [1.0, 2.0]),
        )
        for call in calls:
            with pytest.raises(
                (LookupError, ValueError, TimeoutError, NdError), match="kkk…"
            ) as got:
                call()
            assert len(str(got.value)) < 700


class Marked(np.ndarray):
    """An array of a class of its own."""


def test_values_and_versions() -> None:
    with (
        ipc.Blackboard("b", {"pose": "6f8", "mode": "u1"}) as board,
        ipc.BlackboardReader("b") as reader,
    ):
        assert reader.version("pose") == 0
        with pytest.raises(LookupError, match="not written yet"):
            reader["pose"]
        board["pose"] = [1, 2, 3, 4, 5, 6]
        board["mode"] = 3
        assert reader["pose"].tolist() == [1, 2, 3, 4, 5, 6]
        assert reader["mode"] == 3
        board["mode"] = 4
        assert (reader["mode"], reader.version("mode"), reader.version("pose")) == (4, 2, 1)
        assert board.version("mode") == 2
        assert board["mode"] == 4
        mine = reader["pose"]
        mine[0] = 99  # a copy of one's own
        assert reader["pose"][0] == 1
        with pytest.raises(KeyError, match="pose, mode"):
            reader["other"]


def test_a_whole_number_that_does_not_fit_is_refused() -> None:
    with ipc.Blackboard("b", {"mode": "u1"}) as board:
        board["mode"] = 7
        for number in (300, -1, np.int64(300), np.array(-1)):
            with pytest.raises(OverflowError, match=r"the value of 'mode'"):
                board["mode"] = number
        assert board["mode"] == 7


def test_values_that_do_not_fit_the_type_are_refused() -> None:
    with ipc.Blackboard("b", {"mode": "u1", "at": [("a", "i4"), ("b", "f8")], "s": "S3"}) as board:
        for value in (2.5, np.array(0.5), "1", None):
            with pytest.raises(TypeError, match=r"the value of 'mode'.* is not a"):
                board["mode"] = value
        other = np.zeros((), [("b", "f8"), ("a", "i4")])
        other["a"] = 3
        for at in ((3, 0), {"b": 0, "a": 3}, other):
            board["at"] = at
            assert board["at"]["a"] == 3
        with pytest.raises(TypeError, match=r"field a: 0\.5"):
            board["at"] = 0.5, 1
        with pytest.raises(ValueError, match="the value of 's'"):
            board["s"] = "é"


def test_a_value_beyond_all_memory_is_refused_before_it_takes_any() -> None:
    with ipc.Blackboard("b") as board:
        for type_ in (ipc.Array("u1", 1 << 40), ipc.Array("f8", (1 << 40, 1 << 40))):
            with pytest.raises(NdError, match=r"Blackboard\.add: key 'huge': .* in four"):
                board.add("huge", type_)
        assert board.keys() == ()


def test_an_error_names_the_first_of_many_keys() -> None:
    with ipc.Blackboard("b") as board, ipc.BlackboardReader("b") as reader:
        for number in range(50):
            board[f"k{number}"] = number
        with pytest.raises(KeyError, match=r"its keys: k0, .*, k19, …") as caught:
            reader["other"]
        assert "k20" not in str(caught.value)


def test_keys_are_added_while_running() -> None:
    with ipc.Blackboard("b") as board, ipc.BlackboardReader("b") as reader:
        assert reader.keys() == ()
        board.add("one", "3i4")
        board["one"] = [1, 2, 3]
        board["two"] = np.array([(1, [2.5, 3.5])], dtype=[("a", "i4"), ("b", "f8", (2,))])
        assert reader.keys() == ("one", "two")
        assert "two" in reader
        assert reader["two"]["b"].tolist() == [[2.5, 3.5]]
        board.add("one", "3i4")
        with pytest.raises(NdError, match="'one'"):
            board.add("one", "4i4")
        with pytest.raises(TypeError, match="objects"):
            board.add("three", "O")
        for number in range(50):
            board[f"more{number}"] = np.full(10_000, number)
        assert all((reader[f"more{number}"] == number).all() for number in range(50))


def test_waiting_for_a_change() -> None:
    with ipc.Blackboard("b", {"x": "i8"}) as board, ipc.BlackboardReader("b") as reader:
        board["x"] = 1
        assert reader.wait("x", timeout=5) == 1  # newer than what it has read: nothing
        with pytest.raises(TimeoutError, match="did not change"):
            reader.wait("x", timeout=0.01)
        with pytest.raises(TimeoutError):
            reader.wait("x", after=reader.version("x"), timeout=0)
        assert reader.wait("x", after=0, timeout=0) == 1
        timer = threading.Timer(0.05, board.__setitem__, ("x", 2))
        timer.start()
        assert reader.wait("x", after=1, timeout=60) == 2
        timer.join()


def test_a_reader_before_its_writer() -> None:
    with ipc.BlackboardReader("b") as reader:
        with pytest.raises(ipc.NoPublisher, match="no process writes"):
            reader["x"]
        timer = threading.Timer(0.05, lambda: boards.append(ipc.Blackboard("b", {"x": "i8"})))
        boards: list[ipc.Blackboard] = []
        timer.start()
        with pytest.raises(TimeoutError):
            reader.wait("x", timeout=0.5)
        timer.join()
        boards[0]["x"] = 5
        assert reader.wait("x", timeout=60) == 5
        boards[0].close()


def test_one_writer_and_the_next() -> None:
    with ipc.BlackboardReader("b") as reader:
        with ipc.Blackboard("b", {"x": "i8"}) as board:
            board["x"] = 1
            assert reader.wait("x", timeout=60) == 1
            with pytest.raises(NdError, match="one writer"):
                ipc.Blackboard("b")
        assert reader["x"] == 1  # the last value stays
        assert reader.writer is None
        with ipc.Blackboard("b", {"x": "i8"}) as board:
            board["x"] = 2
            assert reader.wait("x", timeout=60) == 2


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_version_of_the_writer_before_holds_nothing_back(when: str) -> None:
    """The next writer counts from 1 again: to wait for more than the last one wrote takes long."""
    with ipc.BlackboardReader("b") as reader:
        with ipc.Blackboard("b", {"x": "i8", "y": "i8"}) as board:
            for number in range(5):
                board["x"] = board["y"] = number
            assert reader["y"] == 4
            version = reader.version("x")
            assert version == 5
        boards: list[ipc.Blackboard] = []

        def next_writer() -> None:
            boards.append(ipc.Blackboard("b", {"x": "i8", "y": "i8"}))
            boards[0]["x"] = boards[0]["y"] = 7

        timer = threading.Timer(0.05, next_writer)
        timer.start()
        if when == "before":
            timer.join()
            assert reader.wait("y", timeout=60) == 7  # it has met the writer
        assert reader.wait("x", after=version, timeout=60) == 7
        timer.join()
        with pytest.raises(TimeoutError):
            reader.wait("x", after=reader.version("x"), timeout=0.01)
        boards[0]["x"] = 8
        assert asyncio.run(reader.await_change("x", after=1, timeout=60)) == 8
        boards[0].close()


def test_readers_cannot_write() -> None:
    with ipc.Blackboard("b", {"x": "i8"}) as board:
        fd = os.open(f"/proc/self/fd/{board._file.fileno()}", os.O_RDWR | os.O_CLOEXEC)
        try:
            with pytest.raises(PermissionError):
                mmap.mmap(fd, 4096)
            with pytest.raises(PermissionError):
                os.pwrite(fd, b"x", 0)
        finally:
            os.close(fd)


def test_each_key_has_a_version_of_its_own_writer() -> None:
    with ipc.BlackboardReader("b") as reader:
        with ipc.Blackboard("b", {"x": "i8", "y": "i8"}) as board:
            for number in range(5):
                board["x"] = number
            version = reader.version("x")
        with ipc.Blackboard("b", {"x": "i8", "y": "i8"}) as board:
            board["x"] = board["y"] = 7
            assert reader.wait("y", timeout=60) == 7
            assert reader.version("y") == 1
            assert reader.wait("x", after=version, timeout=60) == 7
            with pytest.raises(TimeoutError):  # once for each version of the new writer
                reader.wait("x", after=version, timeout=0.01)
            board["x"] = 8
            assert reader.wait("x", after=version, timeout=60) == 8


@pytest.mark.parametrize("rounds", [8, pytest.param(2000, marks=pytest.mark.soak)])
def test_a_writer_is_killed_in_the_middle_of_a_write(rounds: int) -> None:
    size = 4096
    for _ in range(rounds):
        child = FORK.Process(target=queue_players.write_for_ever, args=("b", size))
        child.start()
        with ipc.BlackboardReader("b") as reader:
            last = 0
            for _ in range(20):
                value = reader.wait("value", timeout=60)
                assert (value == value[0]).all()
                assert value[0] >= last
                last = value[0]
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
            value = reader["value"]
            assert (value == value[0]).all()
            assert value[0] == reader.version("value") >= last


def test_any_number_of_readers_is_awaited_in_a_loop() -> None:
    async def main() -> None:
        waits = [asyncio.create_task(reader.await_change("x", timeout=60)) for reader in readers]
        for number in range(3):
            await asyncio.sleep(0.01)
            assert not any(wait.done() for wait in waits)
            with ipc.Blackboard("b", {"x": "i8"}) as board:  # a writer that comes later, and again
                await asyncio.sleep(0.01)
                board["x"] = number
                assert await asyncio.gather(*waits) == [number] * len(readers)
                changes = asyncio.gather(
                    *(reader.await_change("x", timeout=60) for reader in readers)
                )
                board["x"] = 9
                assert await changes == [9] * len(readers)
            waits = [asyncio.create_task(each.await_change("x", timeout=60)) for each in readers]
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    readers = [ipc.BlackboardReader("b") for _ in range(60)]
    asyncio.run(main())
    for reader in readers:
        reader.close()


def test_asyncio_and_waiting_at_no_cost() -> None:
    async def main() -> int:
        timer = threading.Timer(0.05, board.__setitem__, ("x", 7))
        timer.start()
        found = await reader.await_change("x", after=0, timeout=60)
        timer.join()
        return int(found)

    with ipc.Blackboard("b", {"x": "i8"}) as board, ipc.BlackboardReader("b") as reader:
        assert asyncio.run(main()) == 7
        before = time.process_time()
        with pytest.raises(TimeoutError):
            reader.wait("x", timeout=1)
        assert time.process_time() - before < 0.1
        assert "written by process" in repr(reader)
    assert "closed" in repr(board) + repr(reader)
    with pytest.raises(ipc.Closed):
        board["x"] = 1
    with pytest.raises(ipc.Closed):
        reader["x"]


def test_writer_alone_finds_each_that_comes() -> None:
    name = f"board-{os.getpid()}"
    with ipc.BlackboardReader(name) as reader:
        assert reader.writer is None
        for _ in range(2):
            with ipc.Blackboard(name, {"x": "f8"}):
                assert reader.writer == os.getpid()
            assert reader.writer is None
    assert reader.writer is None
