# SPDX-License-Identifier: Apache-2.0
"""Print the events of connections as they occur: a line for each change between two samples.

The events are derived from the counters that the processes maintain at all times. All changes
between two samples are reported together: three Sends within a millisecond are one line with three
messages. The size of a single message, and the order of events within a sample, are not available.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..observe.counter_reader import CounterReader
from ..observe.snapshot import End, Process, Scene, place
from ..output import add_format, add_namespace
from ..values import address, how_many, process_id, seconds

HELP = "print the events of connections as they occur"
EXAMPLE = "shmnd trace --pid 4711 --for 5"
FAILURE = "no queue pair to trace was found"

_REFRESH: Final = 0.25
"""Seconds between two searches for new adapters, and two readings of the states of processes."""

_COUNTERS: Final = (
    ("posted", "posted", None),
    ("sent", "sent", "sent_bytes"),
    ("recalled", "recalled", None),
    ("received", "received", "received_bytes"),
    ("reads", "read", "read_bytes"),
    ("writes", "written", "written_bytes"),
    ("failures", "failed", None),
)
"""Counters that only grow, the event that reports an increase, and its counter of bytes."""

_TEXTS: Final = {
    "present": "present:",
    "came": "opened:",
    "went": "closed; its process is",
    "posted": "posted {} receive{}",
    "sent": "sent {} message{}",
    "recalled": "withdrew {} message{}",
    "received": "received {} message{}",
    "read": "read {} time{}",
    "written": "wrote {} time{}",
    "failed": "{} request{} failed, the last with",
    "waiting": "waits for a Receive",
    "waited": "no longer waits",
    "outstanding": "{} request{} outstanding",
    "state": "state:",
    "process": "its process is",
}
"""The text of an event: its count with a plural s, its bytes, and then its detail."""


@dataclass(frozen=True)
class Event:
    """A change since the previous sample."""

    time: float
    end: End
    peer: int | None
    what: str
    count: int | None = None
    nbytes: int | None = None
    detail: str = ""

    def row(self) -> dict[str, Any]:
        """Return the event for JSON."""
        return {
            "time": self.time,
            "pid": self.end.process.pid,
            "local": place(self.end.words["local"]),
            "remote": place(self.end.words["remote"]),
            "peer": self.peer,
            "event": self.what,
            "count": self.count,
            "bytes": self.nbytes,
            "detail": self.detail,
        }

    def line(self) -> str:
        """Return the event as a line of text."""
        clock = time.strftime("%H:%M:%S", time.localtime(self.time))
        clock += f"{self.time % 1:.6f}"[1:]
        ends = f"{place(self.end.words['local'])} > {place(self.end.words['remote'])}"
        many = "" if self.count == 1 else "s"
        text = _TEXTS[self.what].format(f"{self.count:,}" if self.count is not None else "", many)
        if self.nbytes is not None:
            text += f", {self.nbytes:,} bytes"
        return f"{clock}  {self.end.process.pid:>7}  {ends}  {text} {self.detail}".rstrip()


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        f"{HELP}.\n\nThe command samples the counters of the processes every millisecond, without"
        "\ntheir help. All changes between two samples are reported together, in one line with a"
        "\ncount. The size of a single message, and the order of events within a sample, are not"
        "\nvisible."
    )
    parser.add_argument(
        "--pid", type=process_id, action="append", help="connections of this process only"
    )
    parser.add_argument(
        "--address",
        type=address,
        metavar="HOST:PORT",
        help="connections with this address at either end only",
    )
    parser.add_argument(
        "--for",
        type=seconds(0, 1_000_000),
        dest="seconds",
        metavar="SECONDS",
        help="end after this time",
    )
    parser.add_argument("--count", type=how_many, metavar="N", help="end after N events")
    parser.add_argument(
        "--interval",
        type=seconds(0.0001, 3600),
        default=0.001,
        metavar="SECONDS",
        help="time between two samples (default 0.001)",
    )
    add_namespace(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print each event in a line, until Ctrl-C or a limit."""
    deadline = None if args.seconds is None else time.monotonic() + args.seconds
    watcher = Watcher(args)
    for pid in watcher.strangers():
        there = (
            "does not exist" if Process.of(pid).state == "gone" else "does not use the namespace"
        )
        print(
            f"shmnd trace: process {pid} {there}; 'shmnd ps' lists those that can be traced",
            file=sys.stderr,
        )
        return 1
    for shown, event in enumerate(watcher.events(deadline), 1):
        print(json.dumps(event.row()) if args.format == "json" else event.line(), flush=True)
        if shown == args.count:
            break
    if watcher.seen:
        return 0
    print(f"shmnd trace: {FAILURE}; 'shmnd ps connections' lists those that exist", file=sys.stderr)
    return 1


class Watcher:
    """Samples the counters and reports the changes since the previous sample."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._reader = CounterReader(args.namespace)
        self._before: dict[tuple[str, int, int], End] = {}
        self._processes: dict[int, Process] = {}
        self.seen = False
        """A queue pair was found."""

    def strangers(self) -> list[int]:
        """Return the processes to trace that do not use the namespace."""
        self._reader.refresh()
        here = {page.pid for page in self._reader.pages}
        return [pid for pid in self._args.pid or () if pid not in here]

    def events(self, deadline: float | None) -> Iterator[Event]:
        """Return the events, until the deadline."""
        self._reader.refresh()
        self._reader.print_note()
        refresh = time.monotonic() + _REFRESH
        first = True
        while deadline is None or time.monotonic() < deadline:
            scene = Scene(processes=dict(self._processes))
            scene.read(self._reader)
            yield from self._compare(scene, first)
            first = False
            self._processes = scene.processes
            if time.monotonic() >= refresh:
                self._reader.refresh()
                self._processes = {}
                refresh = time.monotonic() + _REFRESH
            time.sleep(self._args.interval)

    def _wanted(self, scene: Scene, end: End) -> bool:
        pids, address = self._args.pid, self._args.address
        peer = scene.peer(end)
        here = {end.process.pid, None if peer is None else peer.pid}
        if pids and not here.intersection(pids):
            return False
        ends = (place(end.words["local"]), place(end.words["remote"]))
        return address is None or address in ends

    def _compare(self, scene: Scene, first: bool) -> Iterator[Event]:
        now = time.time()
        found = {end.identity: end for end in scene.ends if self._wanted(scene, end)}
        self.seen = self.seen or bool(found)
        for identity, end in found.items():
            before = self._before.get(identity)
            peer = scene.peer(end)
            pid = None if peer is None else peer.pid
            if before is None:
                yield Event(now, end, pid, "present" if first else "came", detail=end.state)
            else:
                yield from _changes(now, before, end, pid)
        for identity, end in self._before.items():
            if identity not in found:
                yield Event(now, end, None, "went", detail=scene.process(end.process.pid).state)
        self._before = found


def _changes(now: float, before: End, end: End, peer: int | None) -> Iterator[Event]:
    """Report the changes of one end, in an order in which they may have occurred."""
    old, new = _numbers(before), _numbers(end)
    for name, what, size in _COUNTERS:
        if new[name] > old[name]:
            nbytes = None if size is None else max(0, new[size] - old[size])
            detail = end.status if name == "failures" else ""
            yield Event(now, end, peer, what, new[name] - old[name], nbytes, detail)
    if new["waiting_ns"] and not old["waiting_ns"]:
        yield Event(now, end, peer, "waiting")
    elif old["waiting_ns"] and not new["waiting_ns"]:
        yield Event(now, end, peer, "waited")
    if new["outstanding"] != old["outstanding"]:
        yield Event(now, end, peer, "outstanding", new["outstanding"])
    if before.state != end.state:
        yield Event(now, end, peer, "state", detail=f"{before.state} > {end.state}")
    if before.process.state != end.process.state and "stopped" in (
        before.process.state,
        end.process.state,
    ):
        yield Event(now, end, peer, "process", detail=end.process.state)


def _numbers(end: End) -> dict[str, int]:
    return {**end.words, "received": end.received}
