# SPDX-License-Identifier: Apache-2.0
"""Comings and goings, one line each."""

import argparse
import json
import time

from shmnd import ipc

from ..output import add_format, printable
from ..values import how_many

HELP = "print comings and goings of all names as they occur"
EXAMPLE = "shmnd ipc watch --count 5"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--count", type=how_many, metavar="N", help="end after N changes")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Print changes until Ctrl-C; first all that exist."""
    shown = 0
    with ipc.watch() as watch:
        for change in watch:
            if args.format == "json":
                words = ("event", "kind", "name", "role", "pid")
                line = json.dumps({word: getattr(change, word) for word in words})
            else:
                line = (
                    f"{time.strftime('%H:%M:%S')}  {change.event:4}  {change.kind:10}  "
                    f"{printable(change.name)}  {change.role} {change.pid}"
                )
            print(line, flush=True)
            shown += 1
            if shown == args.count:
                break
    return 0
