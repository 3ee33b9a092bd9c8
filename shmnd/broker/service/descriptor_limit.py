# SPDX-License-Identifier: Apache-2.0
"""The limit of the broker's descriptors, which it has from the process that started it.

All processes of the namespace meet that limit, whatever their own are. So a client that is refused
for want of a descriptor reads it.
One descriptor is kept back: with it the broker answers a client for which there is none.
"""

from __future__ import annotations

import errno
import math
import os
import resource
import socket
from collections.abc import Callable
from typing import Final

from shmnd.common.shortages import remedy_of_call

__all__ = ["Reserve", "explained", "limit_of_broker", "raise_limit"]

_PATIENCE: Final = 1.0
"""Seconds of a shortage after which clients are turned away."""
_SPARE: Final = 64
_OUT_OF_MEMORY: Final = (errno.ENOMEM, errno.ENOBUFS)
_LIMITS_OF_MEMORY: Final = (
    "the kernel lacks memory: see the memory of the machine, and that which the control"
    " group of the broker (process {}) may have"
)


def raise_limit() -> int:
    """Raise the limit of descriptors as far as allowed. Return the number left for clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(soft, hard, 2 * _SPARE) - _SPARE


def limit_of_broker() -> str:
    """Return what the limit is, and how to get a broker that has another one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"the broker (process {os.getpid()}) may have {limit} descriptors, as the process that"
        " started it; 'shmnd broker run --replace' where ulimit -Hn is higher replaces it, and"
        " connections continue"
    )


def explained(failure: OSError) -> str:
    """Return a failure, with the limit that it has met: of the broker, or of the machine."""
    if failure.errno == errno.EMFILE:
        return f"{failure}; {limit_of_broker()}"
    if failure.errno in _OUT_OF_MEMORY:
        return f"{failure}; {_LIMITS_OF_MEMORY.format(os.getpid())}"
    return f"{failure}{remedy_of_call(failure)}"


class Reserve:
    """A descriptor that is kept back, to turn clients away where none is free."""

    def __init__(self) -> None:
        self._fd = self._take()
        self._since = self._last = -math.inf
        """When the shortage began, and its last failure."""

    def met(self, failure: OSError, now: float) -> bool:
        """Note a shortage; return whether it has lasted so long that clients are turned away."""
        if now > self._last + _PATIENCE:
            self._since = now  # an earlier shortage has ended, without a client to accept
        self._last = now
        return failure.errno == errno.EMFILE and now >= self._since + _PATIENCE

    def over(self) -> None:
        """Note that a client was accepted."""
        self._last = -math.inf
        if self._fd < 0:
            self._fd = self._take()

    def accept_with_it(
        self, listener: socket.socket, refuse: Callable[[socket.socket], None]
    ) -> bool:
        """Accept a client in order to turn it away. Return whether there was one."""
        self.close()
        try:
            sock, _ = listener.accept()
        except OSError:
            return False
        else:
            refuse(sock)
            sock.close()
            return True
        finally:
            self._fd = self._take()

    def close(self) -> None:
        """Release it; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @staticmethod
    def _take() -> int:
        try:
            return os.eventfd(0, os.EFD_CLOEXEC)
        except OSError:
            return -1
