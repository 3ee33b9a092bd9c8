# SPDX-License-Identifier: Apache-2.0
"""The pointer that all ranks of a file move: a counter in a window of the first rank."""

from __future__ import annotations

from array import array
from typing import Any, Final

from shmnd.mpi.collectives.op import NO_OP, REPLACE, SUM
from shmnd.mpi.objects.errhandler import ERRORS_RETURN
from shmnd.mpi.one_sided.win import Win

_WORD: Final = "q"


class SharedPointer:
    """An offset in a file, which every rank can read and move without the others."""

    def __init__(self, comm: Any) -> None:
        """Make it together with all ranks of `comm`."""
        size = array(_WORD).itemsize if comm.Get_rank() == 0 else 0
        self._window = Win.Allocate(size, comm=comm)
        self._window.Set_errhandler(ERRORS_RETURN)  # that of the file handles the errors
        self._window.Lock_all()
        # The window's communicator is its own: no message of the program meets those on it.
        self.comm = self._window.ob.comm

    def _combine(self, number: int, op: Any) -> int:
        before = array(_WORD, [0])
        self._window.Fetch_and_op(array(_WORD, [number]), before, 0, 0, op)
        return before[0]

    def get(self) -> int:
        """Return the offset."""
        return self._combine(0, NO_OP)

    def set(self, offset: int) -> None:
        """Move the pointer."""
        self._combine(offset, REPLACE)

    def advance(self, etypes: int) -> int:
        """Move the pointer on, and return where it was, as one step."""
        return self._combine(etypes, SUM)

    def free(self) -> None:
        """Free the window, when all ranks have come."""
        self._window.Unlock_all()
        self._window.Free()
