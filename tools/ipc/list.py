# SPDX-License-Identifier: Apache-2.0
"""Which topics, services, events, blackboards and queues there are."""

import argparse
import json
from typing import Any

from shmnd import ipc

from ..output import add_format, show_rows

HELP = "list topics, services, events, blackboards and queues"
EXAMPLE = "shmnd ipc list --format json"

KINDS = {
    "topic": ipc.topics,
    "service": ipc.services,
    "event": ipc.events,
    "blackboard": ipc.blackboards,
    "queue": ipc.queues,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("kind", nargs="?", choices=tuple(KINDS), help="list this kind alone")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """List what there is."""
    rows = [
        row_of(found)
        for kind, find in KINDS.items()
        if args.kind in (None, kind)
        for found in find()
    ]
    if args.format == "table":
        for row in rows:
            row["type"] = text_of(row["type"])
            row["who"] = ", ".join(f"{count} {role}" for role, count in row["counts"].items())
    show_rows(args, rows, "kind", "name", "type", "who")
    return 0


def row_of(found: Any) -> dict[str, Any]:
    """Return a description as JSON writes it."""
    return {
        "kind": found.kind,
        "name": found.name,
        "type": found.type,
        "attributes": dict(found.attributes),
        "counts": dict(found.counts),
        "who": [{"pid": pid, "role": role} for pid, role in found.who],
    }


def text_of(type_: Any) -> str:
    """Return a type in few words."""
    if type_ is None:
        return "-"
    if isinstance(type_, dict) and set(type_) == {"dtype"}:
        return str(type_["dtype"])
    if isinstance(type_, dict) and set(type_) == {"array"}:
        layout, shape = type_["array"]
        each = layout if isinstance(layout, str) else text_of({"structured": layout})
        return f"{each}[{', '.join(map(str, shape))}]"
    for what in ("record", "structured"):
        if isinstance(type_, dict) and set(type_) == {what}:
            return f"{what}(" + ", ".join(field[0] for field in type_[what][1]) + ")"
    if isinstance(type_, dict):
        return " -> ".join(str(part) for part in type_.values())
    return type_ if isinstance(type_, str) else json.dumps(type_)
