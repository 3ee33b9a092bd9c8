# SPDX-License-Identifier: Apache-2.0
"""How many Sends pass in one direction?"""

import argparse

from ...measure.question import Kind
from .common import Traffic

HELP = "bandwidth and message rate of Send (as ndping and ib_send_bw)"
EXAMPLE = "shmnd bench ping -s 8 --engine native"

_TRAFFIC = Traffic("ping", (Kind.STREAM,), 65536)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    _TRAFFIC.configure(parser)
    parser.add_argument(
        "--flow",
        choices=("credit", "receives"),
        default="credit",
        help="send when the receiver has granted credit, as ndping does (default), or leave it to "
        "the provider, which holds a Send until there is a Receive",
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    return _TRAFFIC.run(args)
