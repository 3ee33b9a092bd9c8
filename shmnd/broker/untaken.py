# SPDX-License-Identifier: Apache-2.0
"""Descriptors that came with a message, and that no object has taken."""

from __future__ import annotations

import os
from collections import deque
from itertools import repeat

from shmnd.common.interruption import pass_on

__all__ = ["close_all"]


def close_all(fds: list[int]) -> None:
    """Close descriptors that no object took.

    Compiled code takes each out of the list and closes it: a handler of a signal runs behind that,
    and what it raises leaves those that are still in the list to the next call.
    """
    while fds:
        try:
            deque(map(os.close, map(fds.pop, repeat(-1, len(fds)))), maxlen=0)
        except OSError as exc:
            pass_on(exc)
