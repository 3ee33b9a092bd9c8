# SPDX-License-Identifier: Apache-2.0
"""The launcher's part of a job that continues without the ranks that have died."""

from __future__ import annotations

import selectors
import socket
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Final

from shmnd.common.interruption import pass_on
from shmnd.mpi.communicators.agreement import Agreements
from shmnd.mpi.transport import job_memory
from shmnd.ring.shared_memory.segment import Segment

__all__ = ["Recovery"]


class Recovery:
    """Announces deaths to the ranks, and answers what they agree on by a socket of each.

    An agreement has to come to its end also where ranks die in it, so the launcher leads it. It
    waits for no rank: answers that a socket has no room for are kept until the rank has read some.
    """

    def __init__(self, memory: Segment, selector: selectors.BaseSelector) -> None:
        self._memory: Final = memory
        self._selector: Final = selector
        self._agreements: Final = Agreements()
        self._sockets: Final[dict[int, socket.socket]] = {}
        self._dead: Final[set[int]] = set()
        self._left: Final[defaultdict[int, deque[bytes]]] = defaultdict(deque)
        """Answers that have not been sent, by rank."""

    def connect(self, number: int) -> socket.socket:
        """Return the end of a new socket that a rank gets; `move` when the other one is ready."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._sockets[number] = ours
        self._selector.register(ours, selectors.EVENT_READ, number)
        return theirs

    def move(self, number: int) -> None:
        """Take a message of a rank, and send it the answers that are left."""
        self._send(number)
        sock = self._sockets[number]
        try:
            message = sock.recv(1 << 16)
        except BlockingIOError:
            return  # it has room for answers, and has sent nothing
        except ConnectionResetError as error:
            pass_on(error)
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
            self._left[number].append(text)
            self._send(number)

    def _send(self, number: int) -> None:
        """Send a rank the answers that are left, as far as that needs no wait."""
        sock, left = self._sockets[number], self._left[number]
        try:
            while left:
                sock.send(left[0])
                left.popleft()
                job_memory.wake(self._memory, number)
        except BlockingIOError as error:
            pass_on(error)
        except (BrokenPipeError, ConnectionResetError) as error:
            pass_on(error)
            left.clear()  # the rank has ended
        self._watch(sock, number)

    def _watch(self, sock: socket.socket, number: int) -> None:
        """Poll also for room, while something is left for a rank."""
        key = self._selector.get_map().get(sock)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._left[number] else 0)
        if key is not None and key.events != events:
            self._selector.modify(sock, events, number)

    def close(self) -> None:
        """Close the sockets."""
        for sock in self._sockets.values():
            sock.close()
