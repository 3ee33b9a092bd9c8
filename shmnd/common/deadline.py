# SPDX-License-Identifier: Apache-2.0
"""Moments at which waits end.

`deadline_of` and `left_until` are for callers that pass a time-out on, for which None is one
without an end; `end_of` and `end_after` are for those that compare moments.
"""

from __future__ import annotations

import math
import time

from shmnd.common.arguments import seconds

__all__ = ["deadline_of", "end_after", "end_of", "left_until"]


def deadline_of(timeout: object, call: str) -> float | None:
    """Return when a wait ends; None for one without an end. Raise for a wrong time-out."""
    if timeout is None:
        return None
    return time.monotonic() + seconds(call, 0, "timeout", timeout)


def left_until(deadline: float | None) -> float | None:
    """Return the seconds until then, at least 0; None without an end."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def end_of(timeout: object, call: str) -> float:
    """Return when a wait ends; infinity for one without an end. Raise for a wrong time-out."""
    return math.inf if timeout is None else time.monotonic() + seconds(call, 0, "timeout", timeout)


def end_after(timeout: float | None) -> float:
    """Return when a wait of checked length ends; infinity for one without an end."""
    return math.inf if timeout is None else time.monotonic() + timeout
