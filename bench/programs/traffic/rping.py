# SPDX-License-Identifier: Apache-2.0
"""How many bytes do Writes and Reads move?"""

import argparse

from ...measure.question import Kind
from .common import Traffic

HELP = "bandwidth of Write and Read (as ndrping, ib_write_bw and ib_read_bw)"
EXAMPLE = "shmnd bench rping -s 1M --memory private"

_TRAFFIC = Traffic("rping", (Kind.WRITE_STREAM, Kind.READ_STREAM), 65536)
_KINDS = {
    "write": (Kind.WRITE_STREAM,),
    "read": (Kind.READ_STREAM,),
    "both": _TRAFFIC.kinds,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    _TRAFFIC.configure(parser)
    parser.add_argument(
        "--verb", choices=tuple(_KINDS), default="both", help="the kind of request (default both)"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    return _TRAFFIC.run(args, _KINDS[args.verb])
