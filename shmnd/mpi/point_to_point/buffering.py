# SPDX-License-Identifier: Apache-2.0
"""Buffers for sends in buffered mode.

The engine keeps the bytes of such sends itself, so that a buffer that a program attaches only says
how many bytes may be under way. A send takes room in it until its message has been received, or
lies in the lane.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from shmnd.mpi import constants
from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.buffers.sentinels import BUFFER_AUTOMATIC
from shmnd.mpi.objects.errhandler import raise_error
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.point_to_point.generalized import watched
from shmnd.mpi.point_to_point.request import Request
from shmnd.mpi.transport import engine


class Buffering:
    """What one owner has attached: a communicator, a session, or the process."""

    def __init__(self) -> None:
        """Begin with nothing attached."""
        self._held: Any = None
        self._room: int | None = 0
        self._used = 0

    @property
    def attached(self) -> bool:
        """Whether a buffer is attached."""
        return self._held is not None

    @property
    def left(self) -> str:
        """The room of the buffer, in words."""
        free = (self._room or 0) - self._used
        return f"the attached buffer of {self._room} bytes has {free} left"

    def attach(self, buf: Any, call: str) -> None:
        """Keep the buffer; raise Exception(ERR_BUFFER) where there is one already."""
        if self.attached:
            raise MPIException(
                constants.ERR_BUFFER, f"{call}: a buffer is attached; detach it first"
            )
        if buf is None or buf is BUFFER_AUTOMATIC:
            self._held, self._room = BUFFER_AUTOMATIC, None
            return
        self._room = buffer.frombuffer(buf, readonly=False).nbytes
        self._held = buf

    def detach(self) -> Any:
        """Return the buffer when its sends have ended; None where there is none."""
        self.flush("Detach_buffer")
        held, self._held = self._held, None
        return held

    def take(self, nbytes: int) -> bool:
        """Take room for a message; return whether there is enough."""
        needed = nbytes + constants.BSEND_OVERHEAD
        if self._room is not None and self._used + needed > self._room:
            engine.progress()
            engine.notify_holders()
            if self._used + needed > self._room:
                return False
        self._used += needed
        return True

    def give_back(self, nbytes: int) -> None:
        """Free the room of a message, which has been received."""
        self._used -= nbytes + constants.BSEND_OVERHEAD

    def _is_free(self) -> bool:
        engine.progress()
        engine.notify_holders()
        return self._used == 0

    def iflush(self, call: str) -> Request:
        """Return a request that is complete when the sends of this buffer have ended."""
        return watched(self._is_free, _nothing, call, "")

    def flush(self, call: str) -> None:
        """Wait until the sends of this buffer have ended."""
        if self._used:
            self.iflush(call).Wait()


def _nothing() -> None:
    """End a flush, which has nothing left to do."""


_PROCESS: Final = Buffering()
_SESSIONS: Final[weakref.WeakSet[Buffering]] = weakref.WeakSet()


def of_session() -> Buffering:
    """Return the buffering of a new session: any communicator without a buffer may use it."""
    made = Buffering()
    _SESSIONS.add(made)
    return made


def room_to_buffer(comm: Any, own: Buffering | None, nbytes: int, call: str) -> Buffering:
    """Return the buffering that has given room to a message of a communicator.

    It is that of the communicator; if that has no buffer, of a session; else of the process.
    """
    known = [own] if own is not None and own.attached else [*_SESSIONS, _PROCESS]
    attached = [each for each in known if each.attached]
    for each in attached:
        if each.take(nbytes):
            return each
    why = "no buffer is attached; call MPI.Attach_buffer first"
    if attached:
        why = f"{attached[-1].left}; a message needs its bytes and MPI.BSEND_OVERHEAD"
    raise_error(comm, constants.ERR_BUFFER, f"Comm.{call} of {nbytes} bytes: {why}")
    raise AssertionError  # raise_error does not return


def Attach_buffer(buf: Any) -> None:
    """Attach a user-provided buffer for sending in buffered mode."""
    _PROCESS.attach(buf, "Attach_buffer")


def Detach_buffer() -> Any:
    """Remove an existing attached buffer."""
    return _PROCESS.detach()


def Flush_buffer() -> None:
    """Block until all buffered messages have been transmitted."""
    _PROCESS.flush("Flush_buffer")


def Iflush_buffer() -> Request:
    """Nonblocking flush for buffered messages."""
    return _PROCESS.iflush("Iflush_buffer")
