# SPDX-License-Identifier: Apache-2.0
"""Peers that are measured by a C program of their own: a server, a client, and a table."""

import abc
import os
import shutil
import socket
import time
from pathlib import Path
from typing import ClassVar, Final

from ..measure.how import USUAL
from ..measure.question import Question
from ..measure.reading import Reading
from ..subjects.subject import Subject
from ..workers.child import Child, HarnessError
from ..workers.harness import Stage
from ..workers.worker import CLIENT, SERVER

LISTEN_LIMIT: Final = 10.0
"""Seconds until the server listens."""
_RUN_LIMIT = 60.0
_TCP_LISTEN = "0A"  # a state in /proc/net/tcp


class Program(Subject):
    """Two C processes for each measurement; nothing runs in between."""

    program: ClassVar[str]
    variable: ClassVar[str]
    """Names another program than the first one on PATH."""
    env: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.path = os.environ.get(self.variable) or shutil.which(self.program)
        self._stage: Stage | None = None
        self._children: list[Child] = []

    @abc.abstractmethod
    def command(self, question: Question, count: int, port: int, host: str | None) -> list[str]:
        """Return the arguments of the server, or of the client of a host."""

    @abc.abstractmethod
    def parse(self, output: str, question: Question) -> float:
        """Return the seconds per message from the output of the client."""

    def plain(self, question: Question) -> bool:
        """Return whether a question has no option that only shmnd supports."""
        return question.how == USUAL and not question.idle

    def missing(self) -> str | None:
        """Return why the program cannot be run; None when it is there."""
        if self.path is None:
            return f"no {self.program} on PATH: {self.install}"
        return None

    def start(self, stage: Stage) -> None:
        """Do nothing: no process runs between the measurements."""
        self._stage = stage

    def measure(self, question: Question, count: int, record: bool = False) -> Reading:
        """Start server and client, and read the client's table."""
        port = _free_port()
        try:
            server = self._start(self.command(question, count, port, None), SERVER)
            self._await_listener(server, port)
            client = self._start(self.command(question, count, port, "127.0.0.1"), CLIENT)
            output = client.finish(_RUN_LIMIT)
            server.finish(_RUN_LIMIT)
        finally:
            self.stop()
        return Reading(self.parse(output, question))

    def _start(self, arguments: list[str], role: int) -> Child:
        if self._stage is None or self.path is None:
            raise HarnessError("is not running")
        child = self._stage.start_linked([self.path, *arguments], role=role, env=self.env)
        self._children.append(child)
        return child

    def stop(self, *, orderly: bool = True) -> None:
        """End the remaining processes of a measurement."""
        for child in self._children:
            if self._stage is not None:
                self._stage.discard(child)
        self._children.clear()

    def _await_listener(self, server: Child, port: int) -> None:
        # A trial connection would be taken for the client, so the kernel's table is read instead.
        deadline = time.monotonic() + LISTEN_LIMIT
        while not _listens(port):
            if server.process.poll() is not None:
                raise HarnessError(f"{self.program} {server.post_mortem()}")
            if time.monotonic() > deadline:
                raise HarnessError(f"{self.program} did not listen within {LISTEN_LIMIT:g} s")
            time.sleep(0.002)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _listens(port: int) -> bool:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
