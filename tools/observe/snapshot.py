# SPDX-License-Identifier: Apache-2.0
"""A snapshot of all counters: the ends of connections in pairs, and the cause of each wait.

The owner of a set of counters may write any value, so its words are treated as numbers and nothing
more.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import psutil

from shmnd import Status
from shmnd.broker.protocol import written
from shmnd.handshake.queue_pair_link import QpState
from shmnd.ring.process.counters import SHARED

from .counter_reader import CounterReader, Page

_BOTH_ROLES: Final = 3
"""The roles of the two ends, added: active is 1, passive 2."""


@dataclass(frozen=True)
class Process:
    """A process, as the kernel reports it."""

    pid: int
    state: str
    since: float | None
    """When it was started, in seconds of the wall clock."""
    command: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return a process with its state; one that is gone, or hidden, has only its id."""
        try:
            found = psutil.Process(pid)
            with found.oneshot():
                command = " ".join(found.cmdline()) or found.name()
                # It is the process's own choice, and must not speak to a terminal.
                plain = "".join(each if each.isprintable() else " " for each in command)
                return cls(pid, str(found.status()), found.create_time(), plain)
        except psutil.ZombieProcess:
            return cls(pid, "zombie", None, "?")  # its command has gone
        except (psutil.Error, OSError, ValueError, OverflowError):
            return cls(pid, "hidden" if _lives(pid) else "gone", None, "?")

    @property
    def text(self) -> str:
        """Name it, and say so when it does not run as others do."""
        odd = self.state in ("stopped", "tracing-stop", "zombie", "dead", "gone")
        return f"{self.pid} ({self.state})" if odd else str(self.pid)


def _lives(pid: int) -> bool:
    """Return whether there is a process, which /proc may hide (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


@dataclass(frozen=True)
class End:
    """One queue pair, and the counts of its counters."""

    process: Process
    adapter: str
    index: int
    words: dict[str, Any]

    @property
    def identity(self) -> tuple[str, int, int]:
        """The key that identifies it, also in a later snapshot."""
        return self.adapter, self.index, self.words["name"]

    @property
    def state(self) -> str:
        """The state of its connection."""
        number = self.words["state"]
        return QpState(number).name.lower() if number in list(QpState) else f"state {number:#x}"

    @property
    def sent(self) -> int:
        """Messages on their way or there; not those that were taken back."""
        return max(0, int(self.words["sent"] - self.words["recalled"]))

    @property
    def received(self) -> int:
        """Messages that met a receive."""
        return max(0, int(self.words["taken"] - self.words["skipped"]))

    @property
    def receives(self) -> int | None:
        """Receives posted now; None with a shared receive queue."""
        if self.words["receive_depth"] == SHARED:
            return None
        return max(0, int(self.words["posted"] - self.words["unfilled"]) - self.received)

    @property
    def status(self) -> str:
        """The status of the last request that failed; empty when none did."""
        if not self.words["failures"]:
            return ""
        number = self.words["status"]
        return Status(number).name if number in list(Status) else f"{number:#x}"

    def unread(self, other: End | None) -> int | None:
        """Return the number of messages that have come and were not taken."""
        if other is None:
            return None
        return max(0, int(other.words["sent"] - self.words["taken"]))


@dataclass
class Scene:
    """The contents of one snapshot."""

    processes: dict[int, Process] = field(default_factory=dict)
    pages: list[Page] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    connects: list[tuple[Process, str, str, Process, str]] = field(default_factory=list)
    """Connects without an answer: process, both addresses, whose turn it is, and to do what."""
    moment_ns: int = 0
    """When it was, by the monotonic clock that waits are counted from."""
    _partners: dict[int, list[End]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, reader: CounterReader) -> Scene:
        """Return a scene of all counters."""
        scene = cls()
        scene.read(reader)
        for connect in reader.connects:
            active, passive = connect["active"], connect["passive"]
            asked = scene.process(reader.processes.get(passive["adapter"], 0))
            turn = "to accept" if connect["stage"] == "offered" else "to take the request"
            scene.connects.append(
                (
                    scene.process(reader.processes.get(active["adapter"], 0)),
                    place(active["address"]),
                    place(passive["address"]),
                    asked,
                    turn,
                )
            )
        return scene

    def read(self, reader: CounterReader) -> None:
        """Read all counters."""
        self.pages = reader.pages
        self.moment_ns = time.monotonic_ns()
        for page in self.pages:
            process = self.process(page.pid)
            adapter = page.view.adapter
            first = page.view.number << 16
            for index, words in page.view.pairs().items():
                if words["state"] == QpState.CLOSED:
                    continue
                end = End(process, adapter, first + index, words)
                self.ends.append(end)
                self._partners[words["connection"]].append(end)

    def process(self, pid: int) -> Process:
        """Return a process; its state is read once."""
        if pid not in self.processes:
            self.processes[pid] = Process.of(pid)
        return self.processes[pid]

    def other(self, end: End) -> End | None:
        """Return the other end of its connection; None if there is none, or several claim to be."""
        if not end.words["connection"]:
            return None
        found = [
            each
            for each in self._partners[end.words["connection"]]
            if each.words["role"] + end.words["role"] == _BOTH_ROLES
        ]
        return found[0] if len(found) == 1 else None

    def peer(self, end: End) -> Process | None:
        """Return the process of the other end, as far as it is known."""
        other = self.other(end)
        if other is not None:
            return other.process
        pid = end.words["peer_pid"]
        return self.process(pid) if 0 < pid < 1 << 31 else None

    def waits(self, end: End) -> str:
        """Return what the oldest request waits for, and whose turn it is."""
        if end.words["state"] == QpState.ATTACHED:
            return "the connect to be completed"
        if not end.words["outstanding"] or end.words["state"] != QpState.CONNECTED:
            return ""
        peer, other = self.peer(end), self.other(end)
        name = "the other side" if peer is None else peer.text
        since = end.words["waiting_ns"]
        if since:
            return f"a Receive of {name} for {max(0, self.moment_ns - since) * 1e-9:.1f} s"
        if other is None:
            return name
        if not other.unread(end):
            return "its own poll"
        if other.receives == 0:
            return f"a Receive of {name}"
        return f"a poll by {name}"


def place(address: tuple[str, int] | list[Any] | None) -> str:
    """Return an address as text; a dash if there is none."""
    return "-" if address is None else written((address[0], address[1]))


def heads(pages: list[Page]) -> Iterator[tuple[int, dict[str, int]]]:
    """Return the counts of each adapter with its process; later segments have none."""
    for page in pages:
        if page.view.number == 0:
            yield page.pid, page.view.head()
