# SPDX-License-Identifier: Apache-2.0
"""The connections of a process, when it ends and in its forked children."""

from __future__ import annotations

import os
from typing import Final, Protocol

from shmnd.common.exits import ClosedAtExit

__all__ = ["remember"]


class _Ending(Protocol):
    def close(self) -> None: ...

    def _end_in_child(self) -> None: ...


_open: Final[ClosedAtExit[_Ending]] = ClosedAtExit()


def remember(connection: _Ending) -> None:
    """Close a connection at the end of the process; in a forked child it refuses all calls."""
    _open.add(connection)


def _after_fork_in_child() -> None:
    for connection in _open.snapshot():
        connection._end_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
