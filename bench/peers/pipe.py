# SPDX-License-Identifier: Apache-2.0
"""multiprocessing.Pipe: what Python itself offers between two processes."""

import functools
import multiprocessing.connection
import platform
from typing import Any, ClassVar

from ..measure.question import Question
from .two_sided import Call, TwoSided, TwoSidedEnd


class Pipe(TwoSided):
    """Two processes on the two ends of a pipe."""

    name: ClassVar[str] = "Pipe"
    end: ClassVar[str] = ".peers.pipe:PipeEnd"
    sleeps: ClassVar[bool] = True


class PipeEnd(TwoSidedEnd):
    """One end. Pipe() is a pair of Unix sockets; connected by name, they are the same thing."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        super().__init__(role, options)
        self._listener: multiprocessing.connection.Listener | None = None
        self._pipe: Any = None

    def describe(self) -> dict[str, str]:
        """Return the version of the Python whose pipe it is."""
        return {"Python": platform.python_version()}

    def offer(self, question: Question) -> dict[str, Any]:
        """Listen, once, and return the address."""
        if self._listener is None:
            self._listener = multiprocessing.connection.Listener(family="AF_UNIX")
        return {"address": self._listener.address}

    def join(self, question: Question, offer: dict[str, Any]) -> None:
        """Connect, once; the pipe serves all questions."""
        if self._pipe is None:
            if self._listener is not None:
                self._pipe = self._listener.accept()
            else:
                self._pipe = multiprocessing.connection.Client(offer["address"])

    def calls(self, question: Question) -> tuple[Call, Call]:
        """Return the calls that send and receive bytes."""
        return functools.partial(self._pipe.send_bytes, bytes(question.size)), self._pipe.recv_bytes

    def close(self) -> None:
        """Close both the pipe and its name."""
        if self._pipe is not None:
            self._pipe.close()
        if self._listener is not None:
            self._listener.close()
