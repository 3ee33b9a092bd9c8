# SPDX-License-Identifier: Apache-2.0
"""What the close of an object means to other threads.

A thread that sleeps at a descriptor of it is notified, since the kernel does not end a `poll` of a
descriptor that is closed meanwhile.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from shmnd.common.held import Held
from shmnd.common.interruption import is_interruption

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["announce_closed", "descriptor_while_open", "observe"]


class _Observer(Protocol):
    def object_closed(self) -> None:
        """Note that an object was closed."""


_observers: weakref.WeakKeyDictionary[Any, weakref.WeakSet[_Observer]] = weakref.WeakKeyDictionary()
_lock = threading.RLock()  # a destructor may close an object inside


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # another thread may have had it


os.register_at_fork(after_in_child=_forked)


def descriptor_while_open(
    fileno: Callable[[], int], require_open: Callable[[str], object], call: str
) -> int:
    """Return the descriptor of an object, or raise what `require_open(call)` raises.

    It raises that also where another thread, or a handler of a signal, closes the object meanwhile.
    """
    require_open(call)
    try:
        number = fileno()
    except Exception as exc:
        if not is_interruption(exc):
            require_open(call)
        raise
    require_open(call)  # else the number may be that of another file by now
    return number


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
