# SPDX-License-Identifier: Apache-2.0
"""End the broker. Established connections do not notice; the next control call starts another."""

import argparse
import sys

from shmnd.broker.observer import stop
from shmnd.broker.place import place_of

from ..output import add_namespace

HELP = "stop the broker; established connections continue"
EXAMPLE = "shmnd broker stop --namespace lab"
FAILURE = "the broker does not end (no running broker is not a failure)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_namespace(parser, "namespace of the broker")


def run(args: argparse.Namespace) -> int:
    """End it and wait until it is gone."""
    gone, message = stop(place_of(args.namespace, group=args.group, make=False))
    print(message if gone else f"shmnd: {message}", file=sys.stdout if gone else sys.stderr)
    return 0 if gone else 1
