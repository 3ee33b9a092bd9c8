# SPDX-License-Identifier: Apache-2.0
"""Which processes use shmnd, what their connections have done, and who waits for whom.

It reads what the data plane counts as it goes, and asks none of the processes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from typing import Any, Final

from shmnd.tie import QpState
from shmnd_bench.table import render

from .output import add_format
from .scene import End, Scene, heads, place
from .tallies import Tallies

HELP = "the processes, their connections, what they have done, and who waits for whom"
EXAMPLE = "shmnd ps connections --format json"
FAILURE = "no process uses the namespace"

_PARTS: Final = ("processes", "connections")
_UNITS: Final = ("", "k", "M", "G", "T", "P")
_DAY: Final = 86400


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("what", nargs="?", choices=_PARTS, help="show these alone")
    parser.add_argument("--namespace", help="namespace to look at (default: the usual one)")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Look once, and tell."""
    tallies = Tallies(args.namespace)
    tallies.refresh()
    tell_note(tallies)
    scene = Scene.of(tallies)
    parts = {"processes": process_rows(scene), "connections": connection_rows(scene)}
    if args.what:
        parts = {args.what: parts[args.what]}
    if args.format == "json":
        print(json.dumps(parts, indent=1))
    else:
        print("\n\n".join(_TABLES[name](rows) for name, rows in parts.items()))
    return 0 if scene.pages else 1


def tell_note(tallies: Tallies) -> None:
    """Say on stderr when the broker could not be asked."""
    if tallies.note:
        text = "only processes of this user are looked at"
        print(f"shmnd: {tallies.note}: {text}", file=sys.stderr)


# -- what is told ---------------------------------------------------------------------------------


def process_rows(scene: Scene) -> list[dict[str, Any]]:
    """Tell of each process, with the sums over its queue pairs."""
    sums: dict[int, Counter[str]] = {page.pid: Counter() for page in scene.pages}
    sleeping: dict[int, int] = {}
    for pid, head in heads(scene.pages):
        sums[pid].update(adapters=1, **{name: head[name] for name in _OF_ADAPTERS})
        if head["sleepers"]:
            sleeping[pid] = max(sleeping.get(pid, 0), head["sleeping_ns"])
    for end in scene.ends:
        connected = end.words["state"] == QpState.CONNECTED
        sums[end.process.pid].update(
            queue_pairs=1,
            connections=int(connected),
            sent=end.sent,
            received=end.received,
            **{name: end.words[name] for name in _OF_PAIRS},
        )
    rows = []
    for pid, counted in sums.items():
        process = scene.process(pid)
        asleep = sleeping.get(pid)
        rows.append(
            {
                "pid": pid,
                "state": process.state,
                "since": process.since,
                **{name: counted[name] for name in _COUNTED},
                "asleep": None if asleep is None else max(0, scene.moment_ns - asleep) * 1e-9,
                "command": process.command,
            }
        )
    return rows


_OF_ADAPTERS: Final = ("regions", "region_bytes", "sleepers", "notifies")
_OF_PAIRS: Final = (
    "sent_bytes",
    "received_bytes",
    "reads",
    "read_bytes",
    "writes",
    "written_bytes",
    "outstanding",
)
_COUNTED: Final = (
    "adapters",
    "queue_pairs",
    "connections",
    "sent",
    "received",
    *_OF_ADAPTERS,
    *_OF_PAIRS,
)


def connection_rows(scene: Scene) -> list[dict[str, Any]]:
    """Tell of each queue pair, and of each connect that nobody has answered."""
    rows = [connection_row(scene, end) for end in scene.ends]
    for process, local, remote, asked, turn in scene.connects:
        known = {
            "pid": process.pid,
            "state": "asking",
            "local": local,
            "remote": remote,
            "peer": asked.pid,
            "peer_state": asked.state,
            "status": "",
            "waits": f"{asked.text} {turn}",
        }
        rows.append({name: known.get(name) for name in _OF_CONNECTIONS})
    return rows


_OF_CONNECTIONS: Final = (
    "pid",
    "state",
    "local",
    "remote",
    "peer",
    "peer_state",
    "since",
    "sent",
    "received",
    *_OF_PAIRS,
    "receives",
    "unread",
    "failures",
    "status",
    "waits",
)


def connection_row(scene: Scene, end: End) -> dict[str, Any]:
    """Tell of one queue pair."""
    peer = scene.peer(end)
    known = {
        "pid": end.process.pid,
        "state": end.state,
        "local": place(end.words["local"]),
        "remote": place(end.words["remote"]),
        "peer": None if peer is None else peer.pid,
        "peer_state": None if peer is None else peer.state,
        "since": end.words["since_ns"] * 1e-9,
        "sent": end.sent,
        "received": end.received,
        **{name: end.words[name] for name in _OF_PAIRS},
        "receives": end.receives,
        "unread": end.unread(scene.other(end)),
        "failures": end.words["failures"],
        "status": end.status,
        "waits": scene.waits(end),
    }
    return {name: known[name] for name in _OF_CONNECTIONS}


# -- tables ---------------------------------------------------------------------------------------


def amount(value: float | None) -> str:
    """Write a number with three digits and a unit."""
    if value is None:
        return "-"
    size, unit = float(value), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g}{_UNITS[unit]}" if unit or size % 1 else f"{value:.0f}"


def moment(seconds: float | None) -> str:
    """Write a moment of the wall clock; of an earlier day, the day."""
    if seconds is None:
        return "-"
    try:
        form = "%H:%M:%S" if 0 <= time.time() - seconds < _DAY else "%Y-%m-%d"
        return time.strftime(form, time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "-"  # no clock shows that


def _process_table(rows: list[dict[str, Any]]) -> str:
    headings = (
        "pid",
        "state",
        "since",
        "pairs",
        "connected",
        "regions",
        "bytes",
        "sent",
        "received",
        "outstanding",
        "asleep for",
        "command",
    )
    cells = [
        (
            str(row["pid"]),
            row["state"],
            moment(row["since"]),
            amount(row["queue_pairs"]),
            amount(row["connections"]),
            amount(row["regions"]),
            amount(row["region_bytes"]),
            amount(row["sent"]),
            amount(row["received"]),
            amount(row["outstanding"]),
            "-" if row["asleep"] is None else f"{row['asleep']:.1f} s",
            row["command"][:60],
        )
        for row in rows
    ]
    table: str = render(headings, cells, right="r  rrrrrrrr")
    return table


def _connection_table(rows: list[dict[str, Any]]) -> str:
    headings = (
        "pid",
        "state",
        "local",
        "remote",
        "peer",
        "since",
        "sent",
        "bytes",
        "received",
        "bytes",
        "outstanding",
        "receives",
        "unread",
        "waits for",
    )
    cells = [
        (
            str(row["pid"]),
            row["state"],
            row["local"],
            row["remote"],
            "-" if row["peer"] is None else str(row["peer"]),
            moment(row["since"]),
            amount(row["sent"]),
            amount(row["sent_bytes"]),
            amount(row["received"]),
            amount(row["received_bytes"]),
            amount(row["outstanding"]),
            "shared"
            if row["receives"] is None and row["sent"] is not None
            else amount(row["receives"]),
            amount(row["unread"]),
            row["waits"],
        )
        for row in rows
    ]
    table: str = render(headings, cells, right="r   r rrrrrrr")
    return table


_TABLES: Final = {"processes": _process_table, "connections": _connection_table}
