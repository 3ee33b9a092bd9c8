# SPDX-License-Identifier: Apache-2.0
"""Epochs of windows: a call outside of one, or in the wrong one, is ERR_RMA_SYNC."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from mpi.launcher.jobs import launch
from shmnd.mpi import MPI

Move = Callable[[Any], object]

ONE = bytearray(1)

MOVES: dict[str, Move] = {
    "Put": lambda win: win.Put(ONE, 0),
    "Get": lambda win: win.Get(bytearray(1), 0),
    "Accumulate": lambda win: win.Accumulate([ONE, MPI.BYTE], 0, op=MPI.BOR),
    "Get_accumulate": lambda win: win.Get_accumulate(ONE, bytearray(1), 0, op=MPI.BOR),
    "Fetch_and_op": lambda win: win.Fetch_and_op(ONE, bytearray(1), 0, op=MPI.BOR),
    "Compare_and_swap": lambda win: win.Compare_and_swap(ONE, ONE, bytearray(1), 0),
    "Rput": lambda win: win.Rput(ONE, 0).Wait(),
    "Rget": lambda win: win.Rget(bytearray(1), 0).Wait(),
    "Raccumulate": lambda win: win.Raccumulate(ONE, 0, op=MPI.BOR).Wait(),
    "Rget_accumulate": lambda win: win.Rget_accumulate(ONE, bytearray(1), 0, op=MPI.BOR).Wait(),
}

ITSELF = MPI.COMM_SELF.Get_group()


def _pscw(win: Any) -> None:
    win.Post(ITSELF)
    win.Start(ITSELF)


def _pscw_end(win: Any) -> None:
    win.Complete()
    win.Wait()


EPOCHS: dict[str, tuple[Move, Move]] = {
    "Fence": (lambda win: win.Fence(), lambda win: win.Fence(MPI.MODE_NOSUCCEED)),
    "Lock": (lambda win: win.Lock(0), lambda win: win.Unlock(0)),
    "Lock_all": (lambda win: win.Lock_all(), lambda win: win.Unlock_all()),
    "Start": (_pscw, _pscw_end),
}


@pytest.fixture(params=["Allocate", "Allocate_shared", "Create", "Create_dynamic"])
def win(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "Create":
        made = MPI.Win.Create(bytearray(8))
    elif request.param == "Create_dynamic":
        made = MPI.Win.Create_dynamic()
    else:
        made = getattr(MPI.Win, request.param)(8)
    yield made
    made.Free()


def refused(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(MPI.Exception) as caught:
        call()
    assert caught.value.Get_error_class() == MPI.ERR_RMA_SYNC, str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", MOVES)
def test_a_call_without_an_epoch_names_itself_the_target_and_the_remedy(
    win: Any, name: str
) -> None:
    win.Set_name("halo")
    refused(lambda: MOVES[name](win), f"Win.{name}: ", "rank 0 of halo", "Fence, Lock")


@pytest.mark.parametrize("kind", EPOCHS)
def test_every_epoch_allows_every_call_and_its_end_ends_it(kind: str) -> None:
    win = MPI.Win.Allocate(8)
    begin, end = EPOCHS[kind]
    for _ in range(2):
        begin(win)
        for move in MOVES.values():
            move(win)
        end(win)
        for move in MOVES.values():
            refused(partial(move, win))
    win.Free()


@pytest.mark.parametrize(
    ("before", "call", "words"),
    [
        ("", lambda win: win.Unlock(0), "Win.Unlock of the window of 1: rank 0 is not locked; c"),
        ("", lambda win: win.Unlock_all(), "Lock_all was not called"),
        ("", lambda win: win.Complete(), "call Start first"),
        ("", lambda win: win.Wait(), "Win.Wait of the window of 1: no exposure epoch"),
        ("", lambda win: win.Test(), "call Post first"),
        ("", lambda win: win.Flush(0), "call Lock or Lock_all first"),
        ("", lambda win: win.Flush_local_all(), "no rank is locked"),
        ("Fence", lambda win: win.Flush(0), "call Lock or Lock_all first"),
        ("Lock", lambda win: win.Lock(0), "rank 0 is locked already; call Unlock(0) first"),
        ("Lock", lambda win: win.Lock_all(), "call Unlock first"),
        ("Lock", lambda win: win.Unlock_all(), "Lock_all was not called"),
        ("Lock", lambda win: win.Fence(), "Win.Fence of the window of 1: an access epoch is open"),
        ("Lock", lambda win: win.Start(ITSELF), "call Unlock first"),
        ("Lock", lambda win: win.Free(), "Win.Free of the window of 1: an access epoch is open"),
        ("Lock_all", lambda win: win.Unlock(0), "call Unlock_all"),
        ("Lock_all", lambda win: win.Lock(0), "call Unlock_all first"),
        ("Start", lambda win: win.Fence(), "call Complete first"),
        ("Start", lambda win: win.Lock(0), "call Complete first"),
        ("Start", lambda win: win.Start(ITSELF), "call Complete first"),
        ("Start", lambda win: win.Post(ITSELF), "an exposure epoch is open; call Wait first"),
    ],
)
def test_calls_out_of_turn_name_the_missing_call(before: str, call: Move, words: str) -> None:
    win = MPI.Win.Allocate(8)
    begin, end = EPOCHS.get(before, (lambda win: None, lambda win: None))
    begin(win)
    refused(lambda: call(win), words)
    end(win)
    win.Free()


def test_a_fence_that_nothing_follows_begins_no_epoch() -> None:
    win = MPI.Win.Allocate(8)
    win.Fence()
    win.Lock(0)
    win.Unlock(0)
    refused(lambda: win.Put(ONE, 0))
    win.Fence()
    win.Put(ONE, 0)
    refused(lambda: win.Lock(0), "call Fence first")
    win.Fence()
    with pytest.raises(ValueError, match="3 items"):
        win.Put(ONE, 0, (0, 1, MPI.BYTE, 3))
    _pscw(win)
    win.Complete()
    refused(lambda: win.Fence(), "an exposure epoch is open; call Wait first")
    win.Wait()
    win.Fence()
    win.Put(ONE, 0)
    win.Free()


def test_an_assertion_of_another_call_is_refused() -> None:
    win = MPI.Win.Allocate(8)
    with pytest.raises(MPI.Exception, match=r"Win.Lock: assertion 16; .* MODE_NOCHECK") as caught:
        win.Lock(0, assertion=MPI.MODE_NOSUCCEED)
    assert caught.value.Get_error_class() == MPI.ERR_ASSERT
    win.Free()


RANKS = """
from shmnd.mpi import MPI
comm = MPI.COMM_WORLD
size, rank = comm.size, comm.rank
win = MPI.Win.Allocate(8, comm=comm)
after, other = (rank + 1) % size, (rank + 2) % size
def refused(target):
    try:
        win.Put(b"x", target)
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_RMA_SYNC
        assert f"rank {target} of the window of 3" in str(error), error
    else:
        raise SystemExit(f"rank {rank}: no error at {target}")
win.Lock(after, MPI.LOCK_SHARED)
win.Put(b"x", after)
refused(other)
win.Lock(other, MPI.LOCK_SHARED)
win.Put(b"x", other, 1)
win.Unlock(after)
refused(after)
win.Put(b"x", other, 1)
win.Unlock(other)
comm.Barrier()
group = comm.Get_group()
win.Post(group.Incl([(rank - 1) % size]))
win.Start(group.Incl([after]))
win.Put(b"y", after)
refused(other)
refused(rank)
win.Complete()
refused(after)
win.Wait()
assert bytes(win.tomemory()[:2]) == b"yx"
comm.Barrier()
win.Free()
print("well")
"""


@pytest.mark.slow
def test_an_epoch_is_open_at_its_targets_alone() -> None:
    assert launch(3, "-c", RANKS).stdout.count("well") == 3


@pytest.mark.parametrize("call", ["Flush", "Flush_local"])
def test_a_flush_takes_ranks_as_other_calls_do(call: str) -> None:
    window = MPI.Win.Allocate(8, comm=MPI.COMM_SELF)
    flush: Callable[[Any], None] = getattr(window, call)
    window.Lock(0)
    for rank in (0, False, 0.0, MPI.PROC_NULL):
        flush(rank)
    for wrong in ([], "0", None):
        with pytest.raises(TypeError, match=f"Win.{call}: rank .* is not an integer"):
            flush(wrong)
    for beyond in (-1, 1, True, 2**70):
        with pytest.raises(MPI.Exception, match=f"Win.{call}: rank {beyond}; the window"):
            flush(beyond)
    window.Unlock(0)
    for rank in (0, False):
        with pytest.raises(MPI.Exception, match=f"Win.{call} of .*: rank 0 is not locked"):
            flush(rank)
    window.Free()
    with pytest.raises(MPI.Exception, match="the window is null"):
        flush(0)
