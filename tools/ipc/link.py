# SPDX-License-Identifier: Apache-2.0
"""Topics and services of this host on others, over zenoh."""

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from ..link.bridge import Link
from ..link.session import Session
from ..output import add_format, show_rows
from ..values import seconds
from .names import written

HELP = "carry topics and services to other hosts and from them, over zenoh"
EXAMPLE = "shmnd ipc link --connect tcp/192.0.2.7:7447 --topic 'camera*'"
FAILURE = "zenoh is not installed, or cannot listen there"
MORE_CODES = {0: "success; Ctrl-C ends a link", 130: "ended by Ctrl-C before the link began"}

_NAMES = ("direction", "kind", "name", "number", "bytes", "lost")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="ENDPOINT",
        help="wait for other links there, as tcp/0.0.0.0:7447; repeatable",
    )
    parser.add_argument(
        "--connect",
        action="append",
        default=[],
        metavar="ENDPOINT",
        help="connect to the link that listens there, now and whenever it comes; repeatable",
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="PATTERN",
        type=written,
        help="carry the topics whose names match, as 'camera*'; repeatable",
    )
    parser.add_argument(
        "--service",
        action="append",
        default=[],
        metavar="PATTERN",
        type=written,
        help="carry the services whose names match; repeatable",
    )
    parser.add_argument(
        "--namespace", help="namespace of the programs (default: SHMND_NAMESPACE, or the default)"
    )
    parser.add_argument(
        "--objects",
        action="store_true",
        help="carry pickled objects as well, which run code of their sender at the receiver",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration of zenoh, as for TLS"
    )
    parser.add_argument(
        "--seconds", type=seconds(0, 1e9), metavar="SECONDS", help="end after so long"
    )
    add_format(parser)
    parser.set_defaults(complain=parser.error)


def run(args: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM; then print the counts of samples carried and lost."""
    if not (args.topic or args.service):
        args.complain("name what to carry: --topic PATTERN or --service PATTERN, as --topic '*'")
    if not (args.listen or args.connect or args.config):
        args.complain("name another link: --listen ENDPOINT or --connect ENDPOINT")
    ended = threading.Event()
    before = []
    if threading.current_thread() is threading.main_thread():
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [(number, signal.signal(number, _setter(ended))) for number in numbers]
    try:
        session = Session(args.listen, args.connect, args.config)
        with Link(
            session,
            args.topic,
            args.service,
            namespace=args.namespace,
            objects=args.objects,
            complain=_say,
        ) as link:
            _wait(ended, session, args.seconds, args.connect)
        rows = link.rows()  # its threads have ended, and counted what they carried last
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    if args.format == "json":
        print(json.dumps(rows))
    else:
        show_rows(args, rows, *_NAMES)
    return 0


def _wait(
    ended: threading.Event, session: Session, limit: float | None, connect: list[str]
) -> None:
    """Wait for the end, and say how many links there are when that changes."""
    end = None if limit is None else time.monotonic() + limit
    before = -1
    while not ended.wait(0.5 if end is None else min(0.5, max(0.0, end - time.monotonic()))):
        if (far := session.far) != before:
            before = far
            trying = "" if far or not connect else f", trying {', '.join(connect)}"
            _say(f"{far} other links{trying}")
        if end is not None and time.monotonic() >= end:
            return


def _setter(ended: threading.Event) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        ended.set()

    return handle


def _say(text: str) -> None:
    print(f"shmnd: {text}", file=sys.stderr, flush=True)
