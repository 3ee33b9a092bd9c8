# SPDX-License-Identifier: Apache-2.0
"""Processes that do what their program says, and one end of a conversation, in few words."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import shmnd
from shmnd import MrFlag, RequestType, Status
from shmnd.broker.observer import visit
from shmnd.broker.place import Place, place_of

PATIENCE: Final = 20.0
"""Seconds after which something that must happen counts as missing."""

Address = tuple[str, int]


class Talk:
    """One end of a connection: sends bytes, and gives those that it receives."""

    ROOM: Final = 1 << 16
    pause = 1.0
    """Seconds after which it looks, whether it is rung or not."""

    def __init__(self, adapter: shmnd.Adapter, *, private: bool = False) -> None:
        import numpy as np

        self.adapter = adapter
        self.cq = adapter.create_completion_queue(64)
        self.qp = adapter.create_queue_pair(self.cq, self.cq, receive_depth=8, initiator_depth=8)
        self.out: Any = np.zeros(self.ROOM, np.uint8) if private else adapter.allocate(self.ROOM)
        self.into: Any = np.zeros(self.ROOM, np.uint8) if private else adapter.allocate(self.ROOM)
        self.regions = []
        for buffer in (self.out, self.into):
            region = adapter.create_memory_region()
            region.register(buffer, MrFlag.ALLOW_LOCAL_WRITE).result(PATIENCE)
            self.regions.append(region)
        self.qp.receive(self.regions[1].sge(), "in")
        self.connector = adapter.create_connector()
        self.came: list[bytes] = []
        self.results: list[shmnd.Result] = []
        self.ended = ""

    @classmethod
    def to(cls, adapter: shmnd.Adapter, address: Address, **more: Any) -> Talk:
        """Connect to the listener."""
        talk = cls(adapter, **more)
        talk.connector.connect(talk.qp, address).result(PATIENCE)
        talk.connector.complete_connect().result(PATIENCE)
        return talk

    @classmethod
    def of(cls, listener: shmnd.Listener, **more: Any) -> Talk:
        """Accept the next client."""
        talk = cls(listener._adapter, **more)
        listener.get_connection_request(talk.connector).result(PATIENCE)
        talk.connector.accept(talk.qp).result(PATIENCE)
        return talk

    def say(self, data: bytes) -> None:
        """Send, and wait until it is on its way."""
        self.out[: len(data)] = memoryview(data).cast("B")
        self.qp.send(self.regions[0].sge(0, len(data)), "out")
        self._until(lambda: bool(self.results))
        sent = self.results.pop(0)
        assert sent.request_type is RequestType.SEND
        assert sent.status is Status.SUCCESS, sent

    def hear(self) -> bytes:
        """Wait for a message, and give it."""
        self._until(lambda: bool(self.came))
        return self.came.pop(0)

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            if self.ended:
                raise ConnectionError(self.ended)
            for result in self.cq.wait(8, self.pause):
                if result.request_type is RequestType.RECEIVE:
                    if result.status is not Status.SUCCESS:
                        self.ended = f"{result}"
                        continue
                    self.came.append(bytes(self.into[: result.bytes_transferred]))
                    self.qp.receive(self.regions[1].sge(), "in")
                else:
                    self.results.append(result)
            assert time.monotonic() < deadline, "the other end keeps silent"


def listening(adapter: shmnd.Adapter, port: int = 0) -> shmnd.Listener:
    """Return a listener that listens."""
    listener = adapter.create_listener()
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def join(listener: shmnd.Listener, active: Any, passive: Any) -> list[shmnd.Connector]:
    """Connect two queue pairs of one adapter: the connectors, which are to be kept."""
    asking, asked = (listener._adapter.create_connector() for _ in range(2))
    request = listener.get_connection_request(asked)
    connecting = asking.connect(active, listener.get_local_address())
    request.result(PATIENCE)
    accepting = asked.accept(passive)
    connecting.result(PATIENCE)
    asking.complete_connect().result(PATIENCE)
    accepting.result(PATIENCE)
    return [asking, asked]


def until(fact: Callable[[], bool]) -> None:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {fact!r}"
        time.sleep(0.005)


def refused(status: Status, match: str, call: Callable[[], object]) -> None:
    """Require the NdError of this status, with a message that matches."""
    import pytest  # the processes that use this file need none

    with pytest.raises(shmnd.NdError, match=match) as caught:
        call()
    assert caught.value.status is status


def unshared(*kinds: str) -> list[str]:
    """Return the command that makes namespaces of its own; skip where that is forbidden."""
    import pytest  # the processes that use this file need none

    command = ["unshare", *kinds]
    if shutil.which("unshare") is None:
        pytest.skip("needs the unshare program")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"{' '.join(command)}: {tried.stderr.strip()}")
    return command


PRELUDE: Final = """
import json, os, sys, time
sys.path[:0] = json.loads(os.environ.pop("KIT_PATH"))
def say(*words):
    sys.stdout.write(json.dumps(words[0] if len(words) == 1 else words) + "\\n")
    sys.stdout.flush()
def hear():
    return json.loads(sys.stdin.readline() or '"over"')
"""

KIT: Final = """
import shmnd
from processes.kit import Talk, listening
"""


class Child:
    """A process with a program; what it says and hears are lines of JSON."""

    def __init__(self, program: str, *, kit: bool = True, **options: Any) -> None:
        import json

        wrapper: list[str] = options.pop("wrapper", [])
        source = PRELUDE + (KIT if kit else "") + program
        environment = {**os.environ, **options.pop("env", {}), "KIT_PATH": json.dumps(sys.path)}
        self.process = subprocess.Popen(
            [*wrapper, options.pop("python", sys.executable), "-c", source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=options.pop("stderr", None),
            text=True,
            env=environment,
            **options,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def say(self, what: object) -> None:
        """Send it a message."""
        import json

        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """Wait for what it says."""
        import json

        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 2 * PATIENCE)[0], "it keeps silent"
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait(PATIENCE)}"
        return json.loads(line)

    def end(self) -> int:
        """Let it go to its end; give its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


ECHO: Final = """
adapter = shmnd.open_adapter()
listener = listening(adapter)
say(listener.get_local_address())
talk = Talk.of(listener)
try:
    while True:
        talk.say(talk.hear())
except (ConnectionError, AssertionError):
    pass
adapter.close()
"""
"""A program that answers each message of one client with the same bytes."""


# -- brokers --


def broker_pid(place: Place | None = None) -> int:
    """Return the process that serves a place (the tests' own), 0 when there is none."""
    with visit(place or place_of()) as observer:
        return 0 if observer is None else observer.pid


def end_process(pid: int, number: int = signal.SIGKILL) -> None:
    """End a process, which need not be a child of this one, and wait for its end."""
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, number)
        assert select.select([fd], [], [], PATIENCE)[0], f"{pid} still runs after signal {number}"
    finally:
        os.close(fd)


def end_broker(place: Place) -> None:
    """End the process that serves a place, if there is one and it is not this one."""
    pid = broker_pid(place)
    if pid not in (0, os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            end_process(pid)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Have a process stand still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def shared_names() -> set[str]:
    """Names of ours in /dev/shm."""
    return {path.name for path in Path("/dev/shm").iterdir() if "shmnd" in path.name}
