# SPDX-License-Identifier: Apache-2.0
"""The connections of a process, when it ends and in its forked children."""

from __future__ import annotations

import os
from typing import Final, Protocol

from shmnd.common.exits import AtExit, begin_exit
from shmnd.common.weak import Living

__all__ = ["remember"]


class _Ending(Protocol):
    def close(self) -> None: ...

    def _end_in_child(self) -> None: ...


_all: Final[Living[_Ending]] = Living()


def remember(connection: _Ending) -> None:
    """Close it at the end of the process, and have it refuse all calls in a child."""
    _all.add(connection)
    _exit.register()


def _close_all() -> None:
    """Close all at the end of the process, so that peers see a close and not a death."""
    begin_exit()
    for connection in _all.snapshot():  # threads of the program may run, and open others
        try:
            connection.close()
        except Exception:
            pass  # continue with the others


def _after_fork_in_child() -> None:
    for connection in _all.snapshot():
        connection._end_in_child()


_exit: Final = AtExit(_close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
