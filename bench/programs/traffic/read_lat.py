# SPDX-License-Identifier: Apache-2.0
"""How long does a Read take until its data is there?"""

import argparse

from ...measure.question import Kind
from .common import Traffic

HELP = "latency of Read (as ib_read_lat)"
EXAMPLE = "shmnd bench read-lat -s 64K"

_TRAFFIC = Traffic("read-lat", (Kind.READ,), 40)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    _TRAFFIC.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    return _TRAFFIC.run(args)
