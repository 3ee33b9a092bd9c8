# SPDX-License-Identifier: Apache-2.0
"""Taking a lock in a thread whose signal handlers may raise at any step."""

from __future__ import annotations

import threading

__all__ = ["take_lock"]


def take_lock(lock: threading.RLock, timeout: float) -> bool:
    """Take a lock within some seconds; return whether it was taken.

    A signal handler that raises meanwhile leaves the lock as it was.
    """
    owned = _owns(lock)
    try:
        return lock.acquire(timeout=max(0.0, timeout))
    except BaseException:
        if not owned and _owns(lock):
            lock.release()
        raise


def _owns(lock: threading.RLock) -> bool:
    """Return whether this thread has a lock, by the method that threading.Condition asks."""
    owned: bool = lock._is_owned()  # type: ignore[attr-defined]
    return owned
