# SPDX-License-Identifier: Apache-2.0
"""All that is known of one name."""

import argparse
import json
import sys

from ..output import add_format, show_facts
from .list import KINDS, row_of, text_of
from .names import written

HELP = "show the type, the attributes and the processes of a name"
EXAMPLE = "shmnd ipc info camera"
FAILURE = "there is no such name"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "name", type=written, help="name of a topic, service, event, blackboard or queue"
    )
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Show what goes by that name, be it of several kinds."""
    found = [each for find in KINDS.values() for each in find() if each.name == args.name]
    if not found:
        print(f"shmnd: there is no {args.name!r}; shmnd ipc list has the names", file=sys.stderr)
        return 1
    for number, each in enumerate(found):
        row = row_of(each)
        if args.format == "table":
            if number:
                print()
            row["type"] = text_of(row["type"])
            row["attributes"] = json.dumps(row["attributes"]) if row["attributes"] else "-"
            counts = row.pop("counts")
            row |= {role: f"{count}" for role, count in counts.items()}
            row["who"] = ", ".join(f"{who['role']} {who['pid']}" for who in row["who"])
        show_facts(args, row)
    return 0
