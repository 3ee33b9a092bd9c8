# SPDX-License-Identifier: Apache-2.0
"""Moments at which waits end: of `time.monotonic`, and infinity for a wait without an end."""

from __future__ import annotations

import math
import time

from shmnd.common.arguments import seconds

__all__ = ["end_after", "end_of", "left_until"]


def end_of(timeout: object, call: str) -> float:
    """Return when a wait ends; infinity for one without an end. Raise for a wrong time-out."""
    return math.inf if timeout is None else time.monotonic() + seconds(call, 0, "timeout", timeout)


def end_after(timeout: float | None) -> float:
    """Return when a wait of checked length ends; infinity for one without an end."""
    return math.inf if timeout is None else time.monotonic() + timeout


def left_until(end: float) -> float | None:
    """Return the time-out of a call that waits until then, at least 0; None without an end."""
    return None if end == math.inf else max(0.0, end - time.monotonic())
