# SPDX-License-Identifier: Apache-2.0
"""What the close of an object means to other threads.

A thread that sleeps at a descriptor of it is notified, since the kernel does not end a `poll` of a
descriptor that is closed meanwhile.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

from shmnd.common.held import Held

__all__ = ["announce_closed", "observe"]


class _Observer(Protocol):
    def object_closed(self) -> None:
        """Learn that an object was closed."""


_observers: weakref.WeakKeyDictionary[Any, weakref.WeakSet[_Observer]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()  # a destructor may close an object inside


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # another thread may have had it


os.register_at_fork(after_in_child=_forked)


def observe(obj: Any, observer: _Observer) -> None:
    """Have `object_closed` called when an object is closed. Harmless twice; keeps neither alive."""
    with Held(_lock):
        _observers.setdefault(obj, weakref.WeakSet()).add(observer)


def announce_closed(obj: Any) -> None:
    """Call the observers of an object, after it was marked as closed."""
    if not _observers:
        return
    with Held(_lock):
        observers = list(_observers.get(obj, ()))
    for each in observers:
        each.object_closed()
    with Held(_lock):
        _observers.pop(obj, None)  # last: where a handler of a signal raises, it is called again
