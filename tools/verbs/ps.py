# SPDX-License-Identifier: Apache-2.0
"""List the processes that use shmnd, the counts of their connections, and the cause of each wait.

The command reads the counters of the data plane and needs no answer of the processes.
Jobs of `shmnd mpiexec` are listed rank by rank, with the call that each rank waits in.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from shmnd.broker.place import namespace_name
from shmnd.handshake.queue_pair_link import QpState

from ..columns import Column, amount, amounts, draw, moment, sizes, text
from ..observe.counter_reader import CounterReader
from ..observe.jobs import ranks
from ..observe.snapshot import End, Scene, heads, place
from ..output import add_format, add_namespace

HELP = "list processes and connections, and the cause of each wait"
EXAMPLE = "shmnd ps connections --format json"
FAILURE = "no process uses the namespace"

_PARTS: Final = ("processes", "connections", "ranks")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("what", nargs="?", choices=_PARTS, help="show only one of the tables")
    add_namespace(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Read the counters once and print them."""
    reader = CounterReader(args.namespace)
    reader.refresh()
    reader.print_note()
    scene = Scene.of(reader)
    jobs = rank_rows(namespace_name(args.namespace))
    parts = {
        "processes": process_rows(scene),
        "connections": connection_rows(scene),
        "ranks": jobs,
    }
    if args.what:
        parts = {args.what: parts[args.what]}
    if args.format == "json":
        print(json.dumps(parts, indent=1))
    else:
        if not jobs and args.what is None:
            del parts["ranks"]
        print("\n\n".join(draw(_COLUMNS[name], rows) for name, rows in parts.items()))
    if not scene.pages and not jobs:
        print(f"shmnd: {no_process(args)}", file=sys.stderr)
    return 0 if scene.pages or jobs else 1


def no_process(args: argparse.Namespace) -> str:
    """Return the message for an unused namespace."""
    return f"no process uses namespace {namespace_name(args.namespace)!r}"


# -- rows ------------------------------------------------------------------------------------------


def rank_rows(namespace: str) -> list[dict[str, Any]]:
    """Return each rank of each job of `shmnd mpiexec` in a namespace."""
    return [
        {
            "job": each.job,
            "rank": each.rank,
            "size": each.size,
            "pid": each.pid,
            "waits": each.waits,
            "wait": None if each.wait is None else each.wait._asdict(),
            "command": each.command,
        }
        for each in ranks(namespace)
    ]


def process_rows(scene: Scene) -> list[dict[str, Any]]:
    """Return a row for each process, with the sums over its queue pairs."""
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
    """Return a row for each queue pair, and for each Connect that has no answer yet."""
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
    """Return the row of one queue pair."""
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


_COLUMNS: Final = {
    "processes": (
        text("pid", right=True),
        text("state"),
        Column("since", lambda row: moment(row["since"])),
        amounts("pairs", "queue_pairs"),
        amounts("connected", "connections"),
        amounts("regions"),
        sizes("memory", "region_bytes"),
        amounts("sent"),
        amounts("received"),
        amounts("outstanding"),
        Column(
            "asleep for",
            lambda row: "-" if row["asleep"] is None else f"{row['asleep']:.1f} s",
            right=True,
        ),
        Column("command", lambda row: str(row["command"][:60])),
    ),
    "connections": (
        text("pid", right=True),
        text("state"),
        text("local"),
        text("remote"),
        text("peer", right=True),
        Column("since", lambda row: moment(row["since"])),
        amounts("sent"),
        sizes("bytes", "sent_bytes"),
        amounts("received"),
        sizes("bytes", "received_bytes"),
        amounts("outstanding"),
        Column("receives", lambda row: _receives(row), right=True),
        amounts("unread"),
        text("waits for", "waits"),
    ),
    "ranks": (
        text("job", right=True),
        Column("rank", lambda row: f"{row['rank']} of {row['size']}", right=True),
        text("pid", right=True),
        text("waits in", "waits"),
        Column("command", lambda row: str(row["command"][:60])),
    ),
}


def _receives(row: Mapping[str, Any]) -> str:
    """Return the number of receives as text; those of a shared queue belong to no queue pair."""
    if row["receives"] is None and row["sent"] is not None:
        return "shared"
    return amount(row["receives"])
