# SPDX-License-Identifier: Apache-2.0
"""How long does a Write take until its target sees it in memory?"""

import argparse

from ...measure.question import Kind
from .common import Traffic

HELP = "latency of Write, with a target that polls its memory (as ndrpingpong and ib_write_lat)"
EXAMPLE = "shmnd bench rpingpong -a --csv write.csv"

_TRAFFIC = Traffic("rpingpong", (Kind.WRITE,), 40)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    _TRAFFIC.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    return _TRAFFIC.run(args)
