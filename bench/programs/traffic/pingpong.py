# SPDX-License-Identifier: Apache-2.0
"""How long does a Send take until the other side has received it?"""

import argparse

from ...measure.question import Kind
from .common import Traffic

HELP = "latency of Send and Receive (as ndpingpong and ib_send_lat)"
EXAMPLE = "shmnd bench pingpong -s 40,4K --plot latency.png"

_TRAFFIC = Traffic("pingpong", (Kind.PINGPONG,), 40)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    _TRAFFIC.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    return _TRAFFIC.run(args)
