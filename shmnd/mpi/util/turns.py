# SPDX-License-Identifier: Apache-2.0
"""Turns of ranks at a mutex, by tickets in the order in which they are drawn.

A rank whose wait ends by an exception, as of a handler of a signal, leaves its ticket: it marks it,
and the rank that ends a turn ends those of marked tickets behind it, too. A rank takes its own mark
back with its next wait. The word of a mark changes from the ticket to 0 by a swap: one rank alone
has that turn, or ends it.
"""

from __future__ import annotations

from array import array
from typing import Final

from shmnd.mpi.collectives.op import REPLACE
from shmnd.mpi.communicators.intracomm import Intracomm
from shmnd.mpi.objects.info import Info
from shmnd.mpi.util.words import Words, wait_until

__all__ = ["Turns"]

_NEXT, _TURN, _HOLDER, _EVER_LEFT, _LEFT = range(5)
"""Words of rank 0: the next ticket; the one whose turn it is; 1 + the rank that has it, which the
waiters name; whether any was ever left; and by rank, 1 + the ticket that it has left."""


class Turns:
    """The turns at a mutex, in the window of rank 0."""

    def __init__(self, comm: Intracomm, info: Info) -> None:
        """Make them, together with all ranks of `comm`."""
        self._rank: Final = comm.Get_rank()
        self._size: Final = comm.Get_size()
        self._words: Final = Words(comm, info, 0 if self._rank else _LEFT + self._size)
        self._shown: Final = memoryview(self._words.win.ob.part(0)).cast("q")
        self._mine = -1
        """The ticket that this rank has left, unless its turn has been ended."""
        self.count = 0
        """How often this rank has acquired the mutex; 0 where it is not its turn."""

    def take(self) -> bool:
        """Take the turn if no rank has it or waits for it; return whether it was taken."""
        turn = self._words.read(0, _TURN)
        before = array("q", [-1])  # where an exception finds whether it was taken
        try:
            self._words.swap_into(before, 0, _NEXT, turn, turn + 1)
            if before[0] != turn:
                return False
            self._shown[_HOLDER] = 1 + self._rank
            self.count = 1
        except BaseException:
            if before[0] == turn:
                self.end()
            raise
        return True

    def wait(self, call: str) -> None:
        """Wait for a turn in a call of the program."""
        ticket = array("q", [-1])  # where an exception finds the number
        try:
            self._draw(ticket)
            mine = lambda: bool(self._words.read(0, _TURN) == ticket[0])  # noqa: E731
            wait_until(self._words, call, mine, lambda: self._shown[_HOLDER] - 1)
            self._shown[_HOLDER] = 1 + self._rank
            self.count = 1
        except BaseException:
            if ticket[0] >= 0:
                self._leave(ticket[0])
            raise

    def end(self) -> None:
        """End the turn of this rank, and those behind it whose ranks have left."""
        ended = array("q", [-1])
        try:
            self._end(ended)
        except BaseException:
            self._end(ended)  # no other rank can end this turn
            raise

    def _end(self, ended: array[int]) -> None:
        while True:
            if ended[0] < 0:
                self._shown[_HOLDER] = self.count = 0
                self._words.change_into(ended, 0, _TURN, 1)
            if not self._words.read(0, _EVER_LEFT) or not self._was_left(ended[0] + 1):
                return
            ended[0] = -1

    def free(self) -> None:
        """Free the window, together with all other ranks."""
        self._words.free()

    def _draw(self, ticket: array[int]) -> None:
        if self._mine >= 0:
            ticket[0], self._mine = self._mine, -1
            if self._claim(self._rank, ticket[0]):
                return
            ticket[0] = -1
        self._words.change_into(ticket, 0, _NEXT, 1)

    def _leave(self, ticket: int) -> None:
        """Mark a ticket; where its turn came before the mark could be seen, end that."""
        self._words.change(0, _EVER_LEFT, 1, REPLACE)
        self._words.change(0, _LEFT + self._rank, 1 + ticket, REPLACE)
        self._mine = ticket
        if self._words.read(0, _TURN) == ticket and self._claim(self._rank, ticket):
            self._mine = -1
            self.end()

    def _was_left(self, ticket: int) -> bool:
        """Return whether a rank has left this ticket, whose turn the caller has to end then."""
        return any(
            self._words.read(0, _LEFT + rank) == 1 + ticket and self._claim(rank, ticket)
            for rank in range(self._size)
        )

    def _claim(self, rank: int, ticket: int) -> bool:
        return self._words.swap(0, _LEFT + rank, 1 + ticket, 0)
