# SPDX-License-Identifier: Apache-2.0
"""End the broker. Established connections do not notice; the next control call starts another."""

import argparse
import os
import select
import signal
import sys

from shmnd.broker.place import namespace_name

from .broker_client import LIMIT, visit

HELP = "end the broker; established connections do not notice"
EXAMPLE = "shmnd broker stop --namespace lab"
FAILURE = "it does not end (that none runs is no failure)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--namespace", help="namespace of the broker (default: the usual one)")


def run(args: argparse.Namespace) -> int:
    """End it and wait until it is gone; it is no error when none runs."""
    name = namespace_name(args.namespace)
    with visit(args.namespace) as visitor:
        if visitor is None:
            print(f"no broker runs in namespace {name!r}")
            return 0
        pid = visitor.pid
        # Opened while the broker holds the connection, so it cannot be a later process.
        handle = os.pidfd_open(pid)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):  # a stopped one hears only the second
                signal.pidfd_send_signal(handle, number)
                if select.select([handle], [], [], LIMIT)[0]:
                    break
            else:
                print(f"shmnd: the broker (pid {pid}) does not end", file=sys.stderr)
                return 1
        finally:
            os.close(handle)
    print(f"ended the broker of namespace {name!r} (pid {pid})")
    return 0
