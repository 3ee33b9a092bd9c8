# SPDX-License-Identifier: Apache-2.0
"""Is a broker there, and which processes does it have?"""

import argparse
from typing import Any, Final

from shmnd.broker.observer import facts, visit
from shmnd.broker.place import place_of
from shmnd.broker.protocol import written

from ..output import add_format, add_namespace, show_facts, show_rows

HELP = "show whether a broker runs, and the objects it has"
EXAMPLE = "shmnd broker status connections"
FAILURE = "no broker runs, or it does not answer"

_COLUMNS: Final = {
    "processes": ("process", "pid", "adapters", "objects", "connections", "segments"),
    "adapters": ("adapter", "process", "segments", "bytes"),
    "listeners": ("address", "process", "backlog", "waiting", "armed"),
    "connections": ("connection", "stage", "active", "passive"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "what", nargs="?", choices=tuple(_COLUMNS), help="list these objects in place of the counts"
    )
    add_namespace(parser, "namespace of the broker")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print counts or a list; the exit code is 1 when no broker runs."""
    place = place_of(args.namespace, group=args.group, make=False)
    with visit(place) as observer:
        if args.what and (observer is not None or args.format == "json"):
            records = observer.records(args.what) if observer is not None else []
            rows = [_readable(args, row) for row in records]
            show_rows(args, rows, *_COLUMNS[args.what])
        else:
            show_facts(args, facts(place, observer))
        return 1 if observer is None else 0


def _readable(args: argparse.Namespace, row: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its addresses and ends as text, for tables."""
    if args.format == "json":
        return row
    return {name: _text(value) for name, value in row.items()}


def _text(value: object) -> object:
    match value:
        case [str(host), int(port)]:
            return written((host, port))
        case {"address": address, "state": state}:
            return f"{_text(address)} ({state})"
        case _:
            return value
