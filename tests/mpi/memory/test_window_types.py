# SPDX-License-Identifier: Apache-2.0
"""Derived datatypes in the calls of windows: their reductions, and which bytes they touch."""

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shmnd.mpi import MPI

N = 64


@pytest.fixture(params=["Create", "Allocate"])
def window(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """Integers 0, 1, 2, ... in a window of this rank, and the window in an epoch."""
    if request.param == "Create":
        words = np.arange(N, dtype="i")
        win = MPI.Win.Create(words, 4)
    else:
        win = MPI.Win.Allocate(4 * N, 4)
        words = np.frombuffer(win, "i")
        words[:] = range(N)
    win.Lock(0)
    yield words, win
    win.Unlock(0)
    del words
    win.Free()


def every(step: int, number: int) -> Any:
    """Return `number` integers, each `step` integers after the one before."""
    return MPI.INT.Create_vector(number, 1, step).Commit()


def test_items_of_a_derived_type_are_accumulated(window: tuple[Any, Any]) -> None:
    words, win = window
    thirds = every(3, 5)
    win.Accumulate([np.arange(13, dtype="i") * 100, 1, thirds], 0, [10, 1, thirds], MPI.SUM)
    expected = np.arange(N)
    expected[10:23:3] += np.arange(0, 13, 3) * 100
    assert words.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "nothing",
    [
        MPI.DOUBLE.Create_contiguous(0),
        MPI.INT.Create_hvector(0, 1, 128),
        MPI.Datatype.Create_struct([0, 0], [-8, 0], [MPI.INT, MPI.DOUBLE]),
    ],
    ids=["contiguous", "vector", "struct"],
)
def test_a_part_without_items_does_not_count_as_another_type(
    window: tuple[Any, Any], nothing: Any
) -> None:
    words, win = window
    sparse = MPI.Datatype.Create_struct([2, 1, 1], [0, 4, 12], [nothing, MPI.INT, MPI.INT]).Commit()
    before = np.zeros(2, "i")
    win.Accumulate([np.arange(8, dtype="i") * 100, 1, sparse], 0, [10, 1, sparse], MPI.SUM)
    win.Get_accumulate([np.ones(2, "i"), 2, MPI.INT], before, 0, [10, 1, sparse], MPI.MAX)
    expected = np.arange(N)
    expected[[11, 13]] += [100, 300]
    assert words.tolist() == expected.tolist()
    assert before.tolist() == [111, 313]


@pytest.mark.parametrize("steps", [(2, 3), (1, 3), (3, 1), (2, 2)])
@pytest.mark.parametrize("op", ["SUM", "MAX", "REPLACE", "NO_OP"])
def test_two_derived_types_are_combined_item_by_item(
    window: tuple[Any, Any], steps: tuple[int, int], op: str
) -> None:
    words, win = window
    here, there = steps
    mine = np.arange(N, dtype="i") * -7 + 30
    before = np.full(6, -1, "i")
    win.Get_accumulate(
        [mine, 1, every(here, 6)], before, 0, [1, 1, every(there, 6)], getattr(MPI, op)
    )
    expected = np.arange(N)
    place = slice(1, 1 + 6 * there, there)
    given, old = mine[0 : 6 * here : here][:6], expected[place][:6].copy()
    by_hand = {"SUM": given + old, "MAX": np.maximum(given, old), "REPLACE": given, "NO_OP": old}
    expected[place][:6] = by_hand[op]
    assert before.tolist() == old.tolist()
    assert words.tolist() == expected.tolist()


def test_pairs_with_gaps_are_accumulated() -> None:
    pair = np.dtype([("value", "d"), ("index", "i")], align=True)
    words, mine = np.zeros(6, pair), np.zeros(6, pair)
    words["value"], words["index"] = 5, range(6)
    mine["value"], mine["index"] = range(2, 8), range(10, 16)
    second = MPI.DOUBLE_INT.Create_vector(3, 1, 2).Commit()
    win = MPI.Win.Create(words, 1)
    win.Lock(0)
    win.Accumulate([mine, 1, second], 0, [0, 1, second], MPI.MAXLOC)
    win.Unlock(0)
    win.Free()
    assert words["value"].tolist() == [5, 5, 5, 5, 6, 5]
    assert words["index"].tolist() == [0, 1, 2, 3, 14, 5]


def test_a_type_of_several_kinds_is_refused(window: tuple[Any, Any]) -> None:
    words, win = window
    mixed = MPI.Datatype.Create_struct([1, 1], [0, 8], [MPI.INT, MPI.DOUBLE]).Commit()
    with pytest.raises(MPI.Exception, match=r"Win\.Accumulate: SUM does not take the") as caught:
        win.Accumulate([np.zeros(4, "i"), 1, mixed], 0, [0, 1, mixed], MPI.SUM)
    assert caught.value.Get_error_class() == MPI.ERR_OP
    assert words.tolist() == list(range(N))


@pytest.mark.parametrize("call", ["Put", "Get", "Accumulate", "Get_accumulate"])
def test_the_gaps_of_a_type_are_not_touched(call: str) -> None:
    """The owner may change them at the same time; here they may not be written or read at all."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    memory[:] = b"\1" * len(memory)
    start = np.frombuffer(memory, np.uint8).ctypes.data
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    assert protect(start + page, page, 0) == 0
    ends = MPI.BYTE.Create_hindexed([page, page], [0, 2 * page]).Commit()
    win = MPI.Win.Create(memory)
    mine, before = np.full(2 * page, 4, np.uint8), np.zeros(2 * page, np.uint8)
    try:
        win.Lock(0)
        if call in ("Put", "Get"):
            getattr(win, call)(mine, 0, [0, 1, ends])
        elif call == "Accumulate":
            win.Accumulate([mine, MPI.BYTE], 0, [0, 1, ends], MPI.BOR)
        else:
            win.Get_accumulate([mine, MPI.BYTE], before, 0, [0, 1, ends], MPI.BOR)
        win.Unlock(0)
    finally:
        assert protect(start + page, page, 3) == 0
    new = {"Put": 4, "Get": 1}.get(call, 5)
    assert memory[:page] == memory[2 * page :] == bytes([new]) * page
    assert memory[page : 2 * page] == b"\1" * page
    if call == "Get":
        assert (mine == 1).all()
    if call == "Get_accumulate":
        assert (before == 1).all()
    win.Free()


@pytest.mark.parametrize("number", [1, 127, 128, 129, 1000])
def test_more_places_than_one_call_of_the_kernel_takes(number: int) -> None:
    words, mine = np.arange(3 * number, dtype="i"), np.arange(number, dtype="i") + 5
    win = MPI.Win.Create(words, 4)
    win.Lock(0)
    win.Put(mine, 0, [0, 1, every(3, number)])
    win.Get(got := np.zeros(number, "i"), 0, [0, number, MPI.INT.Create_resized(0, 12).Commit()])
    win.Unlock(0)
    expected = np.arange(3 * number)
    expected[::3] = mine
    assert words.tolist() == expected.tolist()
    assert got.tolist() == mine.tolist()
    win.Free()


def test_items_that_go_downwards_stay_in_the_window(window: tuple[Any, Any]) -> None:
    words, win = window
    down = MPI.INT.Create_resized(0, -4).Commit()
    win.Put(np.array([1, 2, 3], "i"), 0, [10, 3, down])
    assert words[7:12].tolist() == [7, 3, 2, 1, 11]
    for call in (win.Put, win.Get, win.Accumulate):
        with pytest.raises(MPI.Exception, match="bytes -4 to 12 of rank 0") as caught:
            call(np.zeros(4, "i"), 0, [2, 4, down])
        assert caught.value.Get_error_class() == MPI.ERR_RMA_RANGE


@pytest.mark.parametrize(
    "target", [(1 << 62, 1), (-(1 << 62), 1), (0, 1 << 61, MPI.DOUBLE), (1 << 61, 1 << 60)]
)
def test_a_place_beyond_all_addresses_is_refused(
    window: tuple[Any, Any], target: tuple[Any, ...]
) -> None:
    _, win = window
    with pytest.raises(MPI.Exception, match="displacement") as caught:
        win.Put(np.zeros(1, "i"), 0, target)
    assert caught.value.Get_error_class() == MPI.ERR_RMA_RANGE


def test_a_negative_count_is_refused(window: tuple[Any, Any]) -> None:
    _, win = window
    with pytest.raises(MPI.Exception, match="a count of -1 at the target") as caught:
        win.Put(np.zeros(1, "i"), 0, [0, -1])
    assert caught.value.Get_error_class() == MPI.ERR_COUNT
