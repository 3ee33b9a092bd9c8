# SPDX-License-Identifier: Apache-2.0
"""Descriptors that other processes ring: for `select`, asyncio and `WaitSet`.

A bell is a socket at an address that the kernel chose; the address stands in shared memory, where
those who are to ring find it. No descriptor passes between processes, and both end with theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Final

__all__ = ["PAUSE", "Bell", "ring"]

PAUSE: Final = 0.1
"""Seconds after which a sleeper polls in any case: a process may have died as it was to ring."""


def ring(addresses: list[bytes]) -> None:
    """Make the bells at these addresses readable."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as ringer:
        for address in addresses:
            with contextlib.suppress(OSError):  # full: it was rung; closed: it does not sleep
                ringer.sendto(b"!", address)


class Bell:
    """A bell of this process."""

    def __init__(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        made.bind("")  # the kernel gives an address that no other socket has
        self.address: Final[bytes] = made.getsockname()
        self.fd = made.detach()
        self._waiters: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Ring it from here."""
        ring([self.address])

    def drain(self) -> None:
        """Take all rings."""
        with contextlib.suppress(BlockingIOError):
            while True:
                os.read(self.fd, 16)

    async def ringing(self, longest: float) -> None:
        """Wait until it is rung, or so many seconds are over. Any number of tasks may wait."""
        loop = asyncio.get_running_loop()
        came: asyncio.Future[None] = loop.create_future()
        if not self._waiters:
            loop.add_reader(self.fd, self._wake)
        self._waiters.add(came)
        later = loop.call_later(longest, _finish, came)
        try:
            await came
        finally:
            later.cancel()
            self._waiters.discard(came)
            if not self._waiters and self.fd >= 0:
                loop.remove_reader(self.fd)

    def _wake(self) -> None:
        for each in self._waiters:
            _finish(each)

    def close(self) -> None:
        """Close the descriptor. Harmless twice."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
