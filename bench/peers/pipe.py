# SPDX-License-Identifier: Apache-2.0
"""multiprocessing.Pipe: what Python itself offers between two processes."""

import multiprocessing.connection
import platform
import time
from typing import Any, ClassVar

from ..question import Kind, Question
from ..subject import WorkerSubject
from ..worker import CLIENT


class Pipe(WorkerSubject):
    """Two processes on the two ends of a pipe."""

    name: ClassVar[str] = "Pipe"
    end: ClassVar[str] = ".peers.pipe:PipeEnd"

    def answers(self, question: Question) -> bool:
        """Everything two-sided."""
        return question.kind is not Kind.WRITE and not question.idle


class PipeEnd:
    """One end. Pipe() is a pair of Unix sockets; connected by name, they are the same thing."""

    def __init__(self, role: int, options: dict[str, Any]) -> None:
        self._role = role
        self._listener: multiprocessing.connection.Listener | None = None
        self._pipe: Any = None

    def describe(self) -> dict[str, str]:
        """Name the Python whose pipe it is."""
        return {"Python": platform.python_version()}

    def offer(self, question: Question) -> dict[str, Any]:
        """Listen, once."""
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

    def run(self, question: Question, count: int) -> float:
        """Run one of the loops."""
        data = bytes(question.size)
        loop = self._pingpong if question.kind is Kind.PINGPONG else self._stream
        loop(data, count // 20 + 1)
        start = time.perf_counter()
        loop(data, count)
        return time.perf_counter() - start

    def _pingpong(self, data: bytes, count: int) -> None:
        send, receive = self._pipe.send_bytes, self._pipe.recv_bytes
        if self._role == CLIENT:
            for _ in range(count):
                send(data)
                receive()
        else:
            for _ in range(count):
                receive()
                send(data)

    def _stream(self, data: bytes, count: int) -> None:
        send, receive = self._pipe.send_bytes, self._pipe.recv_bytes
        if self._role == CLIENT:
            for _ in range(count):
                send(data)
            receive()
        else:
            for _ in range(count):
                receive()
            send(b"")

    def close(self) -> None:
        """Close both the pipe and its name."""
        if self._pipe is not None:
            self._pipe.close()
        if self._listener is not None:
            self._listener.close()
