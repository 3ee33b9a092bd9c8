# SPDX-License-Identifier: Apache-2.0
"""Whether a thread that waits sleeps, or polls again and again."""

import time
from pathlib import Path
from typing import Final

WINDOW: Final = 0.6
"""Seconds in which a thread is watched; one that polls every 100 ms runs six times meanwhile."""


def switches(thread: int) -> int:
    """Return how often a thread of this process was scheduled, by its number of the kernel."""
    with Path(f"/proc/self/task/{thread}/status").open() as status:
        return sum(int(line.split()[1]) for line in status if "voluntary" in line)


def rest(threads: list[int], most: int, patience: float) -> bool:
    """Return whether there comes a time in which each of the threads runs so often at most.

    A thread sleeps shortly before it sleeps long, and on a busy machine that may last; one that
    polls has no such time.
    """
    until = time.monotonic() + patience
    while time.monotonic() < until:
        before = [switches(each) for each in threads]
        time.sleep(WINDOW)
        ran = [switches(each) - n for each, n in zip(threads, before, strict=True)]
        if max(ran) <= most:
            return True
    return False
