# SPDX-License-Identifier: Apache-2.0
"""Words in the windows of ranks, which change as a whole, and waits for a change."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Any, Final

from shmnd.mpi.collectives.op import NO_OP, SUM
from shmnd.mpi.communicators.intracomm import Intracomm
from shmnd.mpi.constants import MODE_NOCHECK
from shmnd.mpi.datatypes.datatype import Datatype
from shmnd.mpi.objects.info import Info
from shmnd.mpi.one_sided.win import Win
from shmnd.mpi.transport import engine

_Q: Final = Datatype.fromcode("q")


class Words:
    """Words in the windows of all ranks of a communicator, each changed as a whole."""

    def __init__(self, comm: Intracomm, info: Info, count: int, code: str = "q") -> None:
        """Make the window; all words are 0."""
        self.code = code
        self.type = Datatype.fromcode(code)
        self.win = Win.Allocate(count * self.type.size, self.type.size, info, comm)
        self.win.Lock(comm.Get_rank())
        if count:
            self.win.tomemory()[:] = 0
        self.win.Unlock(comm.Get_rank())
        comm.Barrier()
        # One epoch for all calls: a handler of a signal that raises in one leaves none open.
        self.win.Lock_all(MODE_NOCHECK)

    def change(self, rank: int, place: int, value: Any, op: Any = SUM) -> Any:
        """Combine a word with a value, and return what it was before."""
        before = array(self.code, [0])
        self.change_into(before, rank, place, value, op)
        return before[0]

    def change_into(
        self, before: array[Any], rank: int, place: int, value: Any, op: Any = SUM
    ) -> None:
        """Combine a word with a value, and have what it was before stored in an array."""
        given = array(self.code, [value])
        self.win.Fetch_and_op([given, self.type], [before, self.type], rank, place, op)
        self.win.Flush(rank)

    def read(self, rank: int, place: int) -> Any:
        """Return a word."""
        return self.change(rank, place, 0, NO_OP)

    def swap(self, rank: int, place: int, old: int, new: int) -> bool:
        """Set a word to `new` if it is `old`; return whether it was."""
        before = array("q", [0])
        self.swap_into(before, rank, place, old, new)
        return before[0] == old

    def swap_into(self, before: array[int], rank: int, place: int, old: int, new: int) -> None:
        """Set a word to `new` if it is `old`, and have what it was before stored in an array."""
        given, expected = array("q", [new]), array("q", [old])
        self.win.Compare_and_swap([given, _Q], [expected, _Q], [before, _Q], rank, place)
        self.win.Flush(rank)

    def free(self) -> None:
        """Free the window, together with all other ranks."""
        self.win.Unlock_all()
        self.win.Free()


_AWAKE: Final = 100
"""Polls of a wait before it sleeps between them."""
_LONG: Final = 1000
"""Polls, a tenth of a second, after which it is published, and from time to time anew."""


def wait_until(
    words: Words, call: str, done: Callable[[], bool], holder: Callable[[], int] = lambda: -1
) -> None:
    """Wait until `done()`, which rank `holder()` can bring about; -1: any. Other processes run.

    Where that rank has died, or any has, the wait may have no end: it raises ERR_PROC_FAILED.
    """
    polls, dead = 0, False
    try:
        while not done():
            polls += 1
            time.sleep(0 if polls < _AWAKE else 0.0001)
            if polls % _LONG == 0:
                words.win.ob.begin_wait(call, holder())
                # Twice in a row: between two turns at a mutex, no rank holds it for a moment.
                dead = _require_alive(words.win, call, holder(), dead)
    finally:
        words.win.ob.end_wait()


def _require_alive(win: Win, call: str, holder: int, again: bool) -> bool:
    """Return whether the holder of something has died; raise that if it was so before."""
    engine.progress()
    state = win.ob.comm.ob
    dead = [each for each in state.failed() if holder < 0 or each == state.group[holder]]
    if dead and again:
        win.ob.fail_of_dead(dead[0], call)
    return bool(dead)
