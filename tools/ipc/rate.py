# SPDX-License-Identifier: Apache-2.0
"""How fast the samples of topics come, how late, and how many are lost."""

import argparse
import contextlib
import json
import sys
import time
from typing import Any, Final

import numpy as np

from shmnd import ipc

from ..columns import amounts, draw, sizes, text
from ..output import add_format, add_repetition
from .names import topic
from .retyped import next_sample

HELP = "show samples and bytes per second of topics, losses and latencies, live"
EXAMPLE = "shmnd ipc rate camera pose --interval 0.5 --count 10"

_CLEAR: Final = "\x1b[H\x1b[2J"
_MOST_LATENCIES: Final = 100_000
_COLUMNS: Final = (
    text("topic"),
    text("publishers", right=True),
    amounts("samples/s", "samples_per_s"),
    sizes("bytes/s", "bytes_per_s"),
    amounts("lost/s", "lost_per_s"),
    text("median us", "median_us", right=True),
    text("p99 us", "p99_us", right=True),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "topic", type=topic, nargs="*", help="name of a topic (default: all there are)"
    )
    add_repetition(parser)
    add_format(parser)


class Meter:
    """A subscriber that counts."""

    def __init__(self, name: str) -> None:
        self.sub = ipc.Subscriber(name, buffer=1024, history=0)
        self.lost = 0
        self.begin()

    def begin(self) -> None:
        """Count from zero."""
        self.samples = self.nbytes = 0
        self.latencies: list[int] = []
        self.lost = self.sub.lost

    def take(self) -> None:
        """Count the samples that are there."""
        for _ in range(2048):
            sample = next_sample(self.sub)
            if sample is None:
                return
            with sample:
                self.samples += 1
                self.nbytes += sample.nbytes
                if len(self.latencies) < _MOST_LATENCIES:
                    self.latencies.append(time.monotonic_ns() - sample.timestamp_ns)

    def row(self, elapsed: float) -> dict[str, Any]:
        """Return the rates since the count began."""
        median = p99 = None
        if self.latencies:
            found = np.percentile(self.latencies, (50, 99)) / 1000
            median, p99 = (round(float(each), 1) for each in found)
        return {
            "topic": self.sub.name,
            "publishers": self.sub.publishers,
            "samples_per_s": self.samples / elapsed,
            "bytes_per_s": self.nbytes / elapsed,
            "lost_per_s": (self.sub.lost - self.lost) / elapsed,
            "median_us": median,
            "p99_us": p99,
        }


def run(args: argparse.Namespace) -> int:
    """Show a table an interval; with --format json a line of JSON each."""
    names = list(dict.fromkeys(args.topic or [found.name for found in ipc.topics()]))
    if not names:
        print("shmnd: there is no topic", file=sys.stderr)
        return 1
    with contextlib.ExitStack() as stack:
        meters = [Meter(name) for name in names]
        for meter in meters:
            stack.enter_context(meter.sub)
        _show(meters, args)
    return 0


def _show(meters: list[Meter], args: argparse.Namespace) -> None:
    screen = sys.stdout.isatty() and args.format == "table"
    shown = 0
    with ipc.WaitSet(*(meter.sub for meter in meters)) as ready:
        while args.count is None or shown < args.count:
            began = time.monotonic()
            for meter in meters:
                meter.begin()
            while (left := began + args.interval - time.monotonic()) > 0:
                ready.wait(left)
                for meter in meters:
                    meter.take()
            rows = [meter.row(time.monotonic() - began) for meter in meters]
            if args.format == "json":
                print(json.dumps(rows), flush=True)
            else:
                print((_CLEAR if screen else "") + draw(_COLUMNS, rows), flush=True)
            shown += 1
