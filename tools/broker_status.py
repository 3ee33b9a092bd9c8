# SPDX-License-Identifier: Apache-2.0
"""Is a broker there, and whom does it know?"""

import argparse
from typing import Any, Final

from shmnd.broker.place import namespace_name

from .broker_client import Visitor, visit
from .output import add_format, show_facts, show_rows

HELP = "whether a broker runs, and what it knows of"
EXAMPLE = "shmnd broker status connections"
FAILURE = "no broker runs, or it gives no answer"

_COLUMNS: Final = {
    "processes": ("process", "pid", "adapters", "objects", "connections", "segments"),
    "adapters": ("adapter", "process", "segments", "bytes"),
    "listeners": ("address", "process", "backlog", "waiting", "armed"),
    "connections": ("connection", "stage", "active", "passive"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "what", nargs="?", choices=tuple(_COLUMNS), help="list these instead of counting all"
    )
    parser.add_argument("--namespace", help="namespace of the broker (default: the usual one)")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print counts or a list; the exit code is 1 when no broker runs."""
    with visit(args.namespace) as visitor:
        if visitor is None:
            facts = {"namespace": namespace_name(args.namespace), "running": False}
            show_facts(args, facts)
            return 1
        if args.what:
            rows = [_readable(args, row) for row in visitor.records(args.what)]
            show_rows(args, rows, *_COLUMNS[args.what])
        else:
            show_facts(args, _facts(args, visitor))
    return 0


def _facts(args: argparse.Namespace, visitor: Visitor) -> dict[str, Any]:
    return {
        "namespace": namespace_name(args.namespace),
        "running": True,
        "pid": visitor.pid,
        **visitor.counts(),
    }


def _readable(args: argparse.Namespace, row: dict[str, Any]) -> dict[str, Any]:
    """Write addresses and ends the way people do, in tables."""
    if args.format == "json":
        return row
    return {name: _text(value) for name, value in row.items()}


def _text(value: object) -> object:
    match value:
        case [host, port]:
            return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
        case {"address": address, "state": state}:
            return f"{_text(address)} ({state})"
        case _:
            return value
