# SPDX-License-Identifier: Apache-2.0
"""Brief waits: a thread that may wait for the broker only a moment each time.

A call of such a thread that finds the broker slow takes back what it asked for and raises
`TooLate`; then a thread that may wait repeats the call. Only calls that can be taken back ask
whether the waits of their thread are brief; all others wait as usual. A signal handler that runs
meanwhile has brief waits too, and sees `TooLate` as an IO_TIMEOUT.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from shmnd.status import NdTimeoutError, Status

__all__ = ["BRIEF_SECONDS", "TooLate", "brief_until", "briefly", "refuse_brief_wait", "too_late"]

BRIEF_SECONDS: Final = 0.02
"""Seconds of one brief wait.

A broker that runs answers within a tenth of a millisecond. On a machine that is short of
processors it gets its turn within some milliseconds."""

_T = TypeVar("_T")

_brief: Final[dict[int, int]] = {}
"""Threads whose waits are brief, and how often they began: a signal handler may begin again."""


class TooLate(NdTimeoutError):
    """The broker did not answer a thread with brief waits; nothing of the call remains."""


def too_late(call: str) -> TooLate:
    """Return the error of a call whose brief wait has ended without an answer."""
    text = f"{call}: the broker did not answer within {BRIEF_SECONDS} s [IO_TIMEOUT]"
    return TooLate(Status.IO_TIMEOUT, text)


def briefly(call: Callable[[], _T]) -> _T:
    """Return what a call returns; its waits for the broker are brief."""
    me = threading.get_ident()
    before = _brief.get(me, 0)
    try:
        _brief[me] = before + 1
        return call()
    finally:
        if before:
            _brief[me] = before
        else:
            _brief.pop(me, None)


def brief_until() -> float | None:
    """Return when a wait of this thread ends that begins now; None when it may be long."""
    if _brief and threading.get_ident() in _brief:
        return time.monotonic() + BRIEF_SECONDS
    return None


def refuse_brief_wait(call: str) -> None:
    """Raise TooLate in a thread with brief waits, before a step that cannot be taken back."""
    if brief_until() is not None:
        raise too_late(call)


def _after_fork_in_child() -> None:
    """Forget the other threads, which are the parent's: new ones may get their numbers."""
    me = threading.get_ident()
    for thread in list(_brief):
        if thread != me:
            del _brief[thread]


os.register_at_fork(after_in_child=_after_fork_in_child)
