# SPDX-License-Identifier: Apache-2.0
"""A broker in the foreground, for service managers and for watching it."""

import argparse

from shmnd.broker.__main__ import main as serve

from ..output import add_namespace
from ..values import seconds

HELP = "run the broker in the foreground, until SIGTERM or Ctrl-C"
EXAMPLE = "shmnd broker run --namespace lab"
MORE_CODES = {
    0: "success; SIGTERM and Ctrl-C end a broker that serves",
    130: "ended by Ctrl-C before it served",
}
FAILURE = "another broker serves the namespace, or a failure; the reason is on stderr"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_namespace(parser, "namespace to serve")
    parser.add_argument(
        "--group", help="serve the members of this group (default: SHMND_GROUP, or none)"
    )
    parser.add_argument(
        "--idle",
        type=seconds(0, 1_000_000_000),
        default=0.0,
        metavar="SECONDS",
        help="exit after this time without clients (default 0: never)",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="replace a running broker; established connections continue",
    )


def run(args: argparse.Namespace) -> int:
    """Serve, and report on stderr which processes come and go; 1 with another broker there."""
    more = [] if args.namespace is None else ["--namespace", args.namespace]
    if args.group is not None:
        more += ["--group", args.group]
    if args.replace:
        more.append("--replace")
    return serve(["run", "--idle", str(args.idle), *more])
