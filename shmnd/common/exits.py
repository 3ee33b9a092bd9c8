# SPDX-License-Identifier: Apache-2.0
"""Objects that are closed at the end of the interpreter, and the daemon threads that use them.

A thread whose object is closed then sleeps until the process ends.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from shmnd.common.weak import Living

__all__ = ["AtExit", "Closable", "ClosedAtExit", "stay_at_exit"]

_LONGEST_EXIT: Final = 10.0
"""Seconds for which such a thread sleeps, in case an exit handler waits for a lock it holds."""
_exit_began = threading.Event()
"""Set when the end of the interpreter closes objects."""


def stay_at_exit() -> None:
    """Put a daemon thread to sleep that finds its object closed by the end of the interpreter.

    The thread ends with the process. Otherwise it would print an error for which the program has
    given no reason.
    """
    if _exit_began.is_set() and threading.current_thread() is not threading.main_thread():
        time.sleep(_LONGEST_EXIT)


class AtExit:
    """A function that runs at the end of this process, and of a child that registers it again.

    From CPython 3.13 on, a child of multiprocessing drops the registrations of its parent.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._pid = 0
        self.register()

    def register(self) -> None:
        """Register it in this process, once. Functions that are registered later run before it."""
        if self._pid != os.getpid():
            atexit.unregister(self._function)
            atexit.register(self._function)
            self._pid = os.getpid()  # last: after an interruption the next call registers again


class Closable(Protocol):
    """An object with a `close()`."""

    def close(self) -> None:
        """End it; called again where it was interrupted."""


_C = TypeVar("_C", bound=Closable)


class ClosedAtExit(Living[_C]):
    """Objects that are closed when the process ends, so that peers see a close and not a death."""

    def __init__(self) -> None:
        super().__init__()
        self._exit: Final = AtExit(self._close_all)

    def add(self, one: _C) -> None:
        """Close an object at the end of this process. Harmless twice."""
        super().add(one)
        self._exit.register()

    def _close_all(self) -> None:
        _exit_began.set()
        for each in self.snapshot():  # threads of the program may run, and open others
            try:
                each.close()
            except Exception:
                pass  # continue with the others
