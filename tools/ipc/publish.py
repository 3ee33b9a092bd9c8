# SPDX-License-Identifier: Apache-2.0
"""Values of a command line, sent to a topic."""

import argparse
import ast
import os
import sys
import time
from typing import Any

import numpy as np

from shmnd import ipc

from ..values import how_many, number, seconds
from .names import topic
from .waiting import wait_for_subscriber

HELP = "send a value to a topic"
EXAMPLE = "shmnd ipc publish pose [0,0,1.5] --type f8 --rate 10 --count 100"
FAILURE = "no subscriber came, or the value is not of the type"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("topic", type=topic, help="name of a topic")
    parser.add_argument("value", help="Python literal, as [1, 2] or {'a': 1}; text for bytes")
    parser.add_argument(
        "--type",
        default="f8",
        help="numpy dtype of the topic, or bytes, or object (default f8)",
    )
    parser.add_argument("--count", type=how_many, default=1, metavar="N", help="send it N times")
    parser.add_argument(
        "--rate",
        type=number("rate", 0, 1e6),
        default=0.0,
        metavar="HZ",
        help="samples a second (default 0: as many as go)",
    )
    parser.add_argument("--header", help="text that is sent along with each sample")
    parser.add_argument(
        "--wait",
        type=seconds(0, 1e6),
        metavar="SECONDS",
        help="wait so long for a subscriber at most (default: until one comes)",
    )


def run(args: argparse.Namespace) -> int:
    """Wait for a subscriber, and send."""
    header = None if args.header is None else os.fsencode(args.header)
    try:
        value = value_of(args.value, args.type)
        type_ = {"bytes": bytes, "object": object}.get(args.type, args.type)
        with ipc.Publisher(args.topic, type_) as pub:
            wait_for_subscriber(pub, args.wait)
            due = time.monotonic()
            for _ in range(args.count):
                pub.send(value, header)
                if args.rate > 0:
                    due += 1 / args.rate
                    time.sleep(max(0.0, due - time.monotonic()))
    except (TimeoutError, TypeError, ValueError, OverflowError) as exc:
        print(f"shmnd: {exc}", file=sys.stderr)
        return 1
    return 0


def value_of(text: str, type_: str) -> Any:
    """Return the value that a text stands for."""
    if type_ == "bytes":
        return os.fsencode(text)
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last ones: nested deeply
        if type_ == "object":
            return text
        shown = repr(text) if len(text) < 60 else f"{text[:60]!r}..."
        raise ValueError(f"{shown} is not a literal of Python, as 1.5 or [1, 2]") from None
    return value if type_ == "object" else np.asarray(value, type_)
