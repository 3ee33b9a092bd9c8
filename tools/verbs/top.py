# SPDX-License-Identifier: Apache-2.0
"""Show the rates of every connection, repeatedly until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Final

from ..columns import amount, amounts, counted, draw, sizes, text
from ..observe.counter_reader import CounterReader
from ..observe.snapshot import End, Scene, place
from ..output import add_format, add_namespace, add_repetition, fitted
from .ps import no_process

HELP = "show messages and bytes per second of every connection, live"
EXAMPLE = "shmnd top --interval 0.5 --count 10"
FAILURE = "no process uses the namespace"

_CLEAR: Final = "\x1b[H\x1b[2J"
_RATES: Final = (
    "sent",
    "sent_bytes",
    "received",
    "received_bytes",
    "reads",
    "read_bytes",
    "writes",
    "written_bytes",
)

_COLUMNS: Final = (
    text("pid", right=True),
    text("process"),
    text("local"),
    text("remote"),
    text("peer", right=True),
    amounts("sent/s", "sent_per_s"),
    sizes("bytes/s", "sent_bytes_per_s"),
    amounts("received/s", "received_per_s"),
    sizes("bytes/s", "received_bytes_per_s"),
    amounts("reads/s", "reads_per_s"),
    amounts("writes/s", "writes_per_s"),
    amounts("outstanding"),
    amounts("unread"),
    text("waits for", "waits"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_repetition(parser)
    add_namespace(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Show a table an interval; with --format json a line of JSON each."""
    reader = CounterReader(args.namespace)
    reader.refresh()
    reader.print_note()
    screen = sys.stdout.isatty() and args.format == "table"
    before = _counts(Scene.of(reader))
    last = time.monotonic()
    shown = 0
    while args.count is None or shown < args.count:
        time.sleep(args.interval)
        reader.refresh()
        scene = Scene.of(reader)
        now = time.monotonic()
        rows = rate_rows(scene, before, now - last)
        before, last = _counts(scene), now
        if args.format == "json":
            print(_json(rows), flush=True)
        else:
            nothing = "" if reader.pages else no_process(args)
            print(_page(scene, rows, screen, nothing), flush=True)
        shown += 1
    return 0 if reader.pages else 1


def rate_rows(
    scene: Scene, before: dict[tuple[str, int, int], dict[str, int]], seconds: float
) -> list[dict[str, Any]]:
    """Return the rates of each end since the previous table, the busiest first."""
    rows = []
    for end in scene.ends:
        # A connection that is new has done all that it did since then.
        then = before.get(end.identity, {})
        rates = {
            f"{name}_per_s": max(0, count - then.get(name, 0)) / seconds
            for name, count in _counts_of(end).items()
        }
        peer = scene.peer(end)
        rows.append(
            {
                "pid": end.process.pid,
                "process": end.process.state,
                "state": end.state,
                "local": place(end.words["local"]),
                "remote": place(end.words["remote"]),
                "peer": None if peer is None else peer.pid,
                **rates,
                "outstanding": end.words["outstanding"],
                "unread": end.unread(scene.other(end)),
                "waits": scene.waits(end),
            }
        )
    return sorted(rows, key=_busy, reverse=True)


def _busy(row: dict[str, Any]) -> float:
    return float(sum(row[f"{name}_per_s"] for name in ("sent", "received", "reads", "writes")))


def _counts(scene: Scene) -> dict[tuple[str, int, int], dict[str, int]]:
    return {end.identity: _counts_of(end) for end in scene.ends}


def _counts_of(end: End) -> dict[str, int]:
    known = {**end.words, "sent": end.sent, "received": end.received}
    return {name: known[name] for name in _RATES}


def _json(rows: list[dict[str, Any]]) -> str:
    return json.dumps({"time": time.time(), "connections": rows})


def _page(scene: Scene, rows: list[dict[str, Any]], screen: bool, nothing: str) -> str:
    processes = {end.process.pid for end in scene.ends}
    total = sum(row["received_per_s"] for row in rows)
    line = (
        f"{time.strftime('%H:%M:%S')}  {counted(len(processes), 'process', 'processes')},"
        f" {counted(len(rows), 'queue pair')}, {amount(total)} messages/s taken"
    )
    if nothing or not rows:
        line = f"{time.strftime('%H:%M:%S')}  {nothing or 'no process has a queue pair'}"
        return f"{_CLEAR if screen else ''}{fitted(line)}"
    if not screen:
        return f"{line}\n{draw(_COLUMNS, rows)}\n"
    height = os.get_terminal_size().lines - 5
    return f"{_CLEAR}{fitted(line)}\n\n{draw(_COLUMNS, rows[: max(1, height)])}"
