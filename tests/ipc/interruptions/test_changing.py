# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises within a change: the processes that wait for it are woken."""

import select
import threading
import uuid
from functools import partial
from typing import Any

import numpy as np
import pytest

import shmnd
from interrupting import Alarm, inside, interrupted
from shmnd import ipc

WITHIN = inside(shmnd)


def readable(end: Any) -> bool:
    return bool(select.select([end.fileno()], [], [], 0)[0])


@pytest.fixture
def name() -> str:
    return f"name-{uuid.uuid4().hex}"


def test_a_number_rings_all_listeners_or_none_has_it(name: str) -> None:
    with ipc.Notifier(name) as notifier, ipc.Listener(name) as one, ipc.Listener(name) as other:
        at, more = 0, True
        while more:
            assert not any(end.wait(0) or readable(end) for end in (one, other))
            more = interrupted(at, lambda: notifier.notify(3), WITHIN, Alarm)
            rung = [readable(end) for end in (one, other)]
            heard = [end.wait(0) for end in (one, other)]
            assert heard in ([set(), set()], [{3}, {3}])
            assert rung == [bool(each) for each in heard], f"place {at}"
            at += 1
    assert at > 10


def test_a_value_of_a_blackboard_rings_its_readers(name: str) -> None:
    with ipc.Blackboard(name, {"x": "i8"}) as board, ipc.BlackboardReader(name) as reader:
        at, more = 0, True
        while more:
            reader.fileno()
            before = reader.version("x")
            assert not reader.ready()
            more = interrupted(at, partial(board.__setitem__, "x", at), WITHIN, Alarm)
            changed = reader.version("x") != before
            assert readable(reader) or not changed, f"place {at}"
            if changed:
                assert board["x"] == reader["x"] == at
            at += 1
    assert at > 10


def test_a_key_is_there_for_both_sides_or_for_none(name: str) -> None:
    with ipc.Blackboard(name) as board, ipc.BlackboardReader(name) as reader:
        at, more = 0, True
        while more:
            key = f"key {at}"
            more = interrupted(at, partial(board.add, key, "i8"), WITHIN, Alarm)
            assert board.keys() == reader.keys(), f"place {at}"
            board[key] = at
            assert reader[key] == at
            at += 1
    assert at > 10


def test_a_reader_that_was_interrupted_finds_each_key(name: str) -> None:
    with ipc.Blackboard(name) as board, ipc.BlackboardReader(name) as reader:
        at, more = 0, True
        while more:
            key = f"key {at}"
            board[key] = at
            more = interrupted(at, partial(reader.__getitem__, key), WITHIN, Alarm)
            assert reader[key] == at, f"place {at}"
            at += 1
    assert at > 10


def test_threads_that_share_a_reader_get_whole_values(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies run without the interpreter's lock: each call has memory of its own."""
    with ipc.Blackboard(name, {"x": "i8"}) as board, ipc.BlackboardReader(name) as reader:
        board["x"] = 1
        assert reader["x"] == 1
        opened: Any = reader._board
        words = opened.words
        got: list[Any] = []

        class Slow:
            """Another thread reads the next value between two steps of a reading."""

            def read_cell(self, *given: Any) -> int:
                version: int = words.read_cell(*given)
                if not got:
                    got.append(None)
                    board["x"] = 2
                    other = threading.Thread(target=lambda: got.append(reader["x"]))
                    other.start()
                    other.join()
                return version

        monkeypatch.setattr(opened, "words", Slow())
        assert reader["x"] == 1
        assert got == [None, 2]


def test_a_value_that_was_refused_changes_nothing(name: str) -> None:
    with ipc.Blackboard(name, {"x": [("a", "i4"), ("b", "i4")]}) as board:
        board["x"] = (1, 2)
        with pytest.raises(TypeError, match="b"):
            board["x"] = (5, "text")
        assert board["x"] == np.array((1, 2), [("a", "i4"), ("b", "i4")])[()]
