# SPDX-License-Identifier: Apache-2.0
"""The launcher's part of a job that continues without the ranks that have died."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Iterable
from typing import Final

from shmnd.mpi.communicators.agreement import Agreements
from shmnd.mpi.transport import job_memory
from shmnd.ring.shared_memory.segment import Segment

__all__ = ["Recovery"]


class Recovery:
    """Announces deaths to the ranks, and answers what they agree on by a socket of each.

    An agreement has to come to its end also where ranks die in it, so the launcher leads it.
    """

    def __init__(self, memory: Segment, selector: selectors.BaseSelector) -> None:
        self._memory: Final = memory
        self._selector: Final = selector
        self._agreements: Final = Agreements()
        self._sockets: Final[dict[int, socket.socket]] = {}
        self._dead: Final[set[int]] = set()

    def connect(self, number: int) -> socket.socket:
        """Return the end of a new socket that a rank gets; `read` when the other one is ready."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sockets[number] = ours
        self._selector.register(ours, selectors.EVENT_READ, number)
        return theirs

    def read(self, number: int) -> None:
        """Take a message of a rank."""
        sock = self._sockets[number]
        try:
            message = sock.recv(1 << 16)
        except ConnectionResetError:
            message = b""
        if message:
            self._answer(self._agreements.given(number, message))
        else:
            self._selector.unregister(sock)

    def ended(self, number: int, code: int) -> None:
        """Continue without a rank that has ended: it is dead unless its exit code is 0."""
        if code:
            self._announce(number)
        self._answer(self._agreements.died(number))

    def give_up(self, numbers: Iterable[int]) -> None:
        """Have ranks that have ended, and that others still wait for, be dead to these."""
        for number in set(numbers) - self._dead:
            self._announce(number)

    def _announce(self, number: int) -> None:
        self._dead.add(number)
        job_memory.announce_death(self._memory, number)

    def _answer(self, answers: list[tuple[int, bytes]]) -> None:
        for number, text in answers:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._sockets[number].send(text)
                job_memory.wake(self._memory, number)

    def close(self) -> None:
        """Close the sockets."""
        for sock in self._sockets.values():
            sock.close()
