# SPDX-License-Identifier: Apache-2.0
"""libfabric's shared-memory provider, by its own C program fi_pingpong."""

import itertools
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import ClassVar

from ..harness import Child, HarnessError, Stage
from ..question import Kind, Question
from ..subject import Subject
from ..worker import CLIENT, SERVER

PROGRAM_VARIABLE = "SHMND_BENCH_FI_PINGPONG"
"""Names another fi_pingpong than the first one on PATH."""
_LISTEN_LIMIT = 10.0
_RUN_LIMIT = 60.0
_TCP_LISTEN = "0A"  # a state in /proc/net/tcp


class FiPingpong(Subject):
    """Two C processes that exchange messages through the shm provider."""

    name: ClassVar[str] = "fi_pingpong"
    install: ClassVar[str] = "apt-get install libfabric-bin"

    def __init__(self) -> None:
        self._program = os.environ.get(PROGRAM_VARIABLE) or shutil.which("fi_pingpong")
        self._stage: Stage | None = None
        self._children: list[Child] = []

    def answers(self, question: Question) -> bool:
        """It knows only ping-pong."""
        return question.kind is Kind.PINGPONG and not question.idle

    def missing(self) -> str | None:
        """Look for the program."""
        if self._program is None:
            return f"no fi_pingpong on PATH: {self.install}"
        return None

    def start(self, stage: Stage) -> None:
        """Nothing runs between the measurements."""
        self._stage = stage

    def measure(self, question: Question, count: int) -> float:
        """Start server and client; both print the table, the client's is read."""
        if self._stage is None or self._program is None:
            raise HarnessError("is not running")
        port = _free_port()
        common = [
            *(self._program, "-p", "shm", "-e", "rdm"),
            *("-S", str(question.size), "-I", str(count)),
        ]
        try:
            server = self._start([*common, "-B", str(port)], SERVER)
            _await_listener(server, port)
            client = self._start([*common, "-P", str(port), "127.0.0.1"], CLIENT)
            output = client.finish(_RUN_LIMIT)
            server.finish(_RUN_LIMIT)
        finally:
            self.stop()
        return parse(output, question.size)

    def _start(self, argv: list[str], role: int) -> Child:
        assert self._stage is not None
        child = self._stage.start_tied(argv, role=role)
        self._children.append(child)
        return child

    def stop(self, *, orderly: bool = True) -> None:
        """End what is left of a measurement."""
        for child in self._children:
            if self._stage is not None:
                self._stage.discard(child)
        self._children.clear()

    def versions(self) -> dict[str, str]:
        """Ask fi_info, which comes with the program."""
        info = Path(self._program or "").with_name("fi_info")
        try:
            said = subprocess.run(
                [str(info), "--version"], capture_output=True, text=True, timeout=_LISTEN_LIMIT
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return {"libfabric": "unknown"}
        pairs = (line.partition(":")[::2] for line in said.splitlines())
        return {key: value.strip() for key, value in pairs if key == "libfabric"}


def parse(output: str, size: int) -> float:
    """Read seconds one way from the table of fi_pingpong.

    Its `usec/xfer` has two decimals, which is too coarse for tenths of a microsecond; `MB/sec`
    says the same with more digits.
    """
    lines = [line.split() for line in output.splitlines()]
    for names, values in itertools.pairwise(lines):
        if "MB/sec" in names and len(values) == len(names):
            rate = float(values[names.index("MB/sec")])
            if rate > 0:
                return size / (rate * 1e6)
    raise HarnessError(f"cannot read the output of fi_pingpong: {output.strip()!r}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _await_listener(server: Child, port: int) -> None:
    # A trial connection would be taken for the client, so the kernel's table is read instead.
    deadline = time.monotonic() + _LISTEN_LIMIT
    while not _listens(port):
        if server.process.poll() is not None:
            raise HarnessError(f"fi_pingpong {server.post_mortem()}")
        if time.monotonic() > deadline:
            raise HarnessError(f"fi_pingpong did not listen within {_LISTEN_LIMIT:g} s")
        time.sleep(0.002)


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
