# SPDX-License-Identifier: Apache-2.0
"""Buffers for sends in buffered mode.

The engine keeps the bytes of such sends itself, so that a buffer that a program attaches is only
kept for it, and given back when all buffered sends have ended.
"""

from __future__ import annotations

from typing import Any, Final

from shmnd.mpi import constants
from shmnd.mpi.buffers.buffer import buffer
from shmnd.mpi.buffers.sentinels import BUFFER_AUTOMATIC
from shmnd.mpi.objects.errors import Exception as MPIException
from shmnd.mpi.point_to_point.request import Request, ended
from shmnd.mpi.transport import engine


class Buffering:
    """What one owner has attached: a communicator, a session, or the process."""

    def __init__(self) -> None:
        """Begin with nothing attached."""
        self._held: Any = None

    def attach(self, buf: Any, call: str) -> None:
        """Keep the buffer; raise Exception(ERR_BUFFER) where there is one already."""
        if self._held is not None:
            raise MPIException(
                constants.ERR_BUFFER, f"{call}: a buffer is attached; detach it first"
            )
        automatic = buf is None or buf is BUFFER_AUTOMATIC
        self._held = BUFFER_AUTOMATIC if automatic else buffer.frombuffer(buf, readonly=False)

    def detach(self) -> Any:
        """Return the buffer when all buffered sends have ended; None where there is none."""
        engine.flush()
        held, self._held = self._held, None
        return held


_PROCESS: Final = Buffering()


def attach_buffer(buf: Any) -> None:
    """Attach a user-provided buffer for sending in buffered mode."""
    _PROCESS.attach(buf, "Attach_buffer")


def detach_buffer() -> Any:
    """Remove an existing attached buffer."""
    return _PROCESS.detach()


def flush_buffer() -> None:
    """Block until all buffered messages have been transmitted."""
    engine.flush()


def iflush_buffer() -> Request:
    """Nonblocking flush for buffered messages."""
    engine.flush()
    return ended()
