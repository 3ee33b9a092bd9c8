# SPDX-License-Identifier: Apache-2.0
"""What the close of an object means to other threads.

A thread that sleeps at a descriptor of it is notified, since the kernel does not end a `poll` of a
descriptor that is closed meanwhile. A thread whose object is closed by the end of the interpreter
stays where it is.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Final, Protocol

from shmnd.common.held import Held

__all__ = ["announce_closed", "begin_exit", "observe", "stay_at_exit"]

_LONGEST_EXIT: Final = 10.0
"""Seconds that an exit may take in which a handler waits for what a thread has locked."""


class _Observer(Protocol):
    def object_closed(self) -> None:
        """Learn that an object was closed."""


_observers: weakref.WeakKeyDictionary[Any, weakref.WeakSet[_Observer]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()  # a destructor may close an object inside


def observe(obj: Any, observer: _Observer) -> None:
    """Have `object_closed` called when an object is closed. Harmless twice; keeps neither alive."""
    with Held(_lock):
        _observers.setdefault(obj, weakref.WeakSet()).add(observer)


def announce_closed(obj: Any) -> None:
    """Call the observers of an object, after it was marked as closed."""
    if not _observers:
        return
    with Held(_lock):
        observers = list(_observers.pop(obj, ()))
    for each in observers:
        each.object_closed()


_exit_began = threading.Event()


def begin_exit() -> None:
    """Note that the interpreter ends: objects that are closed from now on are closed by that."""
    _exit_began.set()


def stay_at_exit() -> None:
    """Keep a daemon thread that finds its object closed by the end of the interpreter.

    It ends with the process. An error would be printed, of a program that has made none.
    """
    if _exit_began.is_set() and threading.current_thread() is not threading.main_thread():
        time.sleep(_LONGEST_EXIT)
