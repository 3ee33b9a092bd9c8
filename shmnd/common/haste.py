# SPDX-License-Identifier: Apache-2.0
"""A thread in haste: each time it waits for the broker, it does so for a moment at most.

A call that finds the broker slow then raises `TooLate`, after it has taken back what it asked for,
so that all can be done again by a thread that may wait. Only calls that can be taken back check
the haste of their thread; all others wait as ever. A signal handler in the midst of it is in the
same haste: `TooLate` is an IO_TIMEOUT to it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from shmnd.status import NdTimeoutError, Status

__all__ = ["MOMENT", "TooLate", "hasty", "hasty_until", "require_leisure", "too_late"]

MOMENT: Final = 0.02
"""Seconds of one wait in haste.

A broker that runs answers within a tenth of a millisecond. On a machine that is short of
processors it gets its turn within some milliseconds."""

_T = TypeVar("_T")

_in_haste: Final[dict[int, int]] = {}
"""Threads, and how often they are: a signal handler may begin again."""


class TooLate(NdTimeoutError):
    """The broker did not answer a thread in haste; nothing of the call remains."""


def too_late(call: str) -> TooLate:
    """Make the error of a call."""
    return TooLate(
        Status.IO_TIMEOUT, f"{call}: the broker did not answer within {MOMENT} s [IO_TIMEOUT]"
    )


def hasty(call: Callable[[], _T]) -> _T:
    """Make a call in haste."""
    me = threading.get_ident()
    before = _in_haste.get(me, 0)
    try:
        _in_haste[me] = before + 1
        return call()
    finally:
        if before:
            _in_haste[me] = before
        else:
            _in_haste.pop(me, None)


def hasty_until() -> float | None:
    """Return when a wait of this thread ends that begins now; None when it is in no haste."""
    if _in_haste and threading.get_ident() in _in_haste:
        return time.monotonic() + MOMENT
    return None


def require_leisure(call: str) -> None:
    """Refuse a thread in haste what cannot be taken back: TooLate."""
    if hasty_until() is not None:
        raise too_late(call)


def _after_fork_in_child() -> None:
    """The other threads are the parent's; new ones may get their numbers."""
    me = threading.get_ident()
    for thread in list(_in_haste):
        if thread != me:
            del _in_haste[thread]


os.register_at_fork(after_in_child=_after_fork_in_child)
