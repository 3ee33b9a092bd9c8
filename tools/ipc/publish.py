# SPDX-License-Identifier: Apache-2.0
"""Values of a command line, sent to a topic."""

import argparse
import ast
import contextlib
import os
import sys
import time
from typing import Any

import numpy as np

from shmnd import ipc
from shmnd.ipc.types import forms
from shmnd.ipc.types.plain_values import as_array

from ..values import how_many, number, seconds
from .names import topic
from .waiting import sleep_until, wait_for_subscriber

HELP = "send a value to a topic"
EXAMPLE = "shmnd ipc publish pose [0,0,1.5] --type f8 --rate 10 --count 100"
FAILURE = "no subscriber came, or the value is not of the type"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("topic", type=topic, help="name of a topic")
    parser.add_argument("value", help="Python literal, as [1, 2] or {'a': 1}; text for bytes")
    parser.add_argument(
        "--type",
        type=_known_type,
        default="f8",
        dest="form",
        help="numpy dtype of the topic, as i4 or [('x', 'i4'), ('y', 'f8')]; or bytes, or object "
        "(default f8)",
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
        help="wait so long for a subscriber at most (default: until one comes; 0: publish at once)",
    )


def run(args: argparse.Namespace) -> int:
    """Wait for a subscriber, and send."""
    header = None if args.header is None else os.fsencode(args.header)
    try:
        value = value_of(args.value, args.form.kind)
        with ipc.Publisher(args.topic, args.form) as pub:
            value = _fitting(value, pub.type)
            wait_for_subscriber(pub, args.wait)
            due = time.monotonic()
            for _ in range(args.count):
                pub.send(value, header)
                if args.rate > 0:
                    due += 1 / args.rate
                    sleep_until(due)
    except (TimeoutError, TypeError, ValueError, OverflowError) as exc:
        print(f"shmnd: {exc}", file=sys.stderr)
        return 1
    return 0


def value_of(text: str, kind: int) -> Any:
    """Return the literal that a text is, or its bytes."""
    if kind == forms.BYTES:
        return os.fsencode(text)
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last ones: nested deeply
        if kind == forms.OBJECT:
            return text
        shown = repr(text) if len(text) < 60 else f"{text[:60]!r}..."
        raise ValueError(f"{shown} is not a literal of Python, as 1.5 or [1, 2]") from None
    return value


def _type_of(text: str) -> Any:
    """Return the type that a text means: a dtype with fields may be written as a literal."""
    if text.startswith(("[", "{")):
        with contextlib.suppress(SyntaxError, ValueError, MemoryError, RecursionError):
            return ast.literal_eval(text)
    return {"bytes": bytes, "object": object}.get(text, text)


def _known_type(text: str) -> forms.TopicType:
    """Return the type of a topic."""
    try:
        return forms.form_of(_type_of(text), "publish")
    except (TypeError, ValueError) as exc:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a dtype of numbers and text, as i4 or [('x', 'i4'), ('y', 'f8')]; "
            "nor is it bytes or object"
        ) from exc


def _fitting(value: Any, form: forms.TopicType) -> Any:
    """Return a value in the type of its topic: an error of it comes before any wait."""
    if form.kind != forms.FIXED:
        return value
    if not form.is_record or (isinstance(value, list) and form.shape is None):
        return as_array(value, form, "publish")
    array = np.zeros((), form.dtype)
    form.fill(array, value, "publish")
    return array
