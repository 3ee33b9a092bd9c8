# SPDX-License-Identifier: Apache-2.0
"""POSIX message queues: the kernel's own, one for each direction."""

import functools
import importlib
from pathlib import Path
from typing import Any, ClassVar, Final

from ..measure.question import Question
from .two_sided import Call, TwoSided, TwoSidedEnd

_LIMIT: Final = Path("/proc/sys/fs/mqueue/msgsize_max")


class PosixQueue(TwoSided):
    """Two processes and two queues."""

    name: ClassVar[str] = "POSIX mq"
    install: ClassVar[str] = "pip install posix_ipc"
    end: ClassVar[str] = ".peers.mqueue:PosixQueueEnd"
    needs: ClassVar[str] = "posix_ipc"

    def answers(self, question: Question) -> bool:
        """Return whether it is two-sided, with messages no longer than the kernel permits."""
        return super().answers(question) and 0 < question.size <= _largest()


def _largest() -> int:
    try:
        return int(_LIMIT.read_text())
    except OSError:
        return 8192


class PosixQueueEnd(TwoSidedEnd):
    """One end; the server makes the queues, and their names are gone once both ends hold them."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._ipc: Any = importlib.import_module("posix_ipc")
        self._made: dict[int, list[Any]] = {}
        self._queues: dict[int, list[Any]] = {}

    def describe(self) -> dict[str, str]:
        """Return the version of the module."""
        return {"posix_ipc": self._ipc.VERSION}

    def offer(self, question: Question) -> dict[str, Any]:
        """Make two queues for messages of this size."""
        make = functools.partial(
            self._ipc.MessageQueue,
            None,
            self._ipc.O_CREX,
            max_messages=self._ipc.QUEUE_MESSAGES_MAX_DEFAULT,
            max_message_size=question.size,
        )
        self._made[question.size] = [make(), make()]
        return {"names": [queue.name for queue in self._made[question.size]]}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Open the queues; the last to do so takes their names away."""
        mine = self._made.pop(question.size, None)
        queues = mine or [self._ipc.MessageQueue(name) for name in offer["names"]]
        self._queues[question.size] = queues

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Return the calls of an end; each direction has a queue of its own."""
        there, back = self._queues[question.size]
        mine, theirs = (there, back) if self._role == 0 else (back, there)
        return functools.partial(mine.send, bytes(question.size)), theirs.receive

    def close(self) -> None:
        """Close and unlink the remaining queues."""
        for queues in [*self._made.values(), *self._queues.values()]:
            for queue in queues:
                try:
                    queue.unlink()
                except (self._ipc.ExistentialError, OSError):
                    pass  # the other side was first
                queue.close()
