# SPDX-License-Identifier: Apache-2.0
"""The clients of a server, as it knows them: which it answers, and whether they still wait."""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.descriptors import taking_from_the_system
from shmnd.common.interruption import pass_on
from shmnd.ipc.common.processes import Process, pid_here, pid_in_proc
from shmnd.ipc.naming.shared_name import open_of_process
from shmnd.ipc.queue.parts import core_here, taken_over
from shmnd.ipc.queue.queue_core import QueueCore
from shmnd.ipc.queue.queueing import Queue
from shmnd.status import NdError, NdMemoryError

if TYPE_CHECKING:
    from shmnd.ipc.naming.shared_name import Holder

__all__ = ["KnownClient", "clients_here", "is_open", "open_answers", "origin_of"]

clients_here: Final[weakref.WeakSet[QueueCore]] = weakref.WeakSet()
"""The answers of the clients of this process that are open."""
_FRESH: Final = 0.001
"""Seconds for which a client that was found alive counts as that."""


class KnownClient:
    """A client: the queue of its answers, its member number there, and its process.

    `process` is the process as it names itself, and the number that the broker has of it.
    """

    def __init__(self, answers: Queue, member: int, process: tuple[Process, int]) -> None:
        self.answers: Final = answers
        self._member = member
        self._process = process
        self.pid = pid_here(*process)
        """Its process, as it is known here."""
        self._until = 0.0

    def lives(self, member: int = -1, process: tuple[Process, int] | None = None) -> bool:
        """Return whether it waits for answers: its process may have died, or closed it.

        The arguments come from a request. An earlier request may have named another process.
        """
        now = time.monotonic()
        if process is None:
            pass
        elif (member, process) != (self._member, self._process):
            self._member, self._process, self.pid = member, process, pid_here(*process)
        elif now < self._until:
            return True
        self._until = now + _FRESH
        return is_open(self.answers._core, self._member, self.pid)


def origin_of(item: Any) -> tuple[tuple[Process, int], int, tuple[int, int], int, int] | None:
    """Return where a request came from; None for an item that no client of this library sends.

    That is the process with the number that the broker has of it; the descriptor and the file of
    the answers; the number of the request; and the member number of the client.
    """
    if type(item) is not tuple or len(item) != 9:
        return None
    if any(type(each) is not int or not 0 <= each < 1 << 64 for each in item[:-1]):
        return None
    space, own, likely, fd, device, inode, number, member = item[:-1]
    if not 0 < number < 1 << 63:
        return None
    return (Process(space, own), likely), fd, (device, inode), number, member


def is_open(answers: QueueCore, member: int, pid: int) -> bool:
    """Return whether a client waits for answers: a member of their queue, of some process."""
    # One of this process is the same member there as its server.
    return answers in clients_here if member == answers.me else answers.lives_as(member, pid)


def open_answers(
    process: tuple[Process, int], number: int, key: tuple[int, int], name: str
) -> Queue | None:
    """Return the queue of a client's answers, opened; None when the client is gone."""
    try:
        with taking_from_the_system(f"Server {name!r}"):
            found: Holder | None = core_here(*key)  # a client of this process
            if found is None:
                found = open_of_process(pid_in_proc(*process), number, key, os.O_RDWR, taken_over)
            if found is None:
                return None
            answers = Queue.of_file(found)
            answers._keep_from_children()
            return answers
    except NdMemoryError:
        raise
    except (OSError, NdError) as exc:
        pass_on(exc)
        return None  # gone, or no queue
