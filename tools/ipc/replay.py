# SPDX-License-Identifier: Apache-2.0
"""A recorded file, published again."""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shmnd import ipc

from ..output import printable
from ..sample_kinds import BYTES, OBJECT
from ..values import number, seconds
from .described import Recorded, history_of
from .names import written
from .recording import Recording
from .waiting import sleep_until, wait_for_subscriber

HELP = "publish a recorded file again"
EXAMPLE = "shmnd ipc replay run.rec --speed 2"
FAILURE = (
    "the file is not a recording, or damaged; it has no such topic, or no subscriber came; samples "
    "that can be read were published"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("file", type=Path, help="file that `shmnd ipc record` has written")
    parser.add_argument(
        "--topic", action="append", type=written, help="replay this topic alone; repeatable"
    )
    parser.add_argument(
        "--speed",
        type=number("factor", 0, 1e6),
        default=1.0,
        metavar="FACTOR",
        help="times as fast as it was recorded; 0 for as fast as it goes (default 1)",
    )
    parser.add_argument("--loop", action="store_true", help="begin again at the end, until Ctrl-C")
    parser.add_argument(
        "--wait",
        type=seconds(0, 1e6),
        default=0.0,
        metavar="SECONDS",
        help="wait so long for a subscriber of each topic (default 0: publish at once)",
    )


def run(args: argparse.Namespace) -> int:
    """Publish the samples in the order of their times and at the pace of the recording."""
    try:
        with Recording(args.file, _complain) as recording, contextlib.ExitStack() as stack:
            if recording.unread:
                print(
                    f"shmnd: {args.file} has no end; its last {recording.unread:,} bytes, which are"
                    f" no whole sample, are left out",
                    file=sys.stderr,
                )
            _require_topics(recording, args.topic or ())
            pubs = {
                number: stack.enter_context(_publisher(topic, recording.types[number]))
                for number, topic in recording.topics.items()
                if args.topic is None or topic["name"] in args.topic
            }
            for pub in pubs.values():
                wait_for_subscriber(pub, args.wait)
            while True:
                sent = _play(recording, pubs, args.speed)
                if not args.loop or sent == 0:
                    break
    except (TimeoutError, TypeError, ValueError) as exc:
        print(f"shmnd: {exc}", file=sys.stderr)
        return 1
    print(f"{sent} samples", file=sys.stderr)
    return int(recording.damaged)


def _complain(text: str) -> None:
    print(f"shmnd: {printable(text)}", file=sys.stderr, flush=True)


def _require_topics(recording: Recording, wanted: Iterable[str]) -> None:
    """Raise ValueError for a name that is not in the recording."""
    there = sorted({topic["name"] for topic in recording.topics.values()})
    for name in wanted:
        if name not in there:
            raise ValueError(
                f"the recording has no topic {name!r}; its topics: {', '.join(there) or 'none'}"
            )


def _publisher(topic: dict[str, Any], type_: ipc.TopicType) -> ipc.Publisher:
    return ipc.Publisher(
        topic["name"], type_, history=history_of(topic), attributes=topic["attributes"]
    )


def _play(recording: Recording, pubs: dict[int, ipc.Publisher], speed: float) -> int:
    sent = 0
    first = began = None
    for sample in recording:
        pub = pubs.get(sample.topic)
        if pub is None:
            continue
        if first is None or began is None:
            first = max(sample.timestamp_ns, recording.began_ns)
            began = time.monotonic()
        if speed > 0:
            sleep_until(began + (sample.timestamp_ns - first) / 1e9 / speed)
        send(pub, sample)
        sent += 1
        if sys.stderr.isatty() and sent % 1000 == 0:
            print(f"{sent} of {len(recording)} samples", file=sys.stderr, end="\r", flush=True)
    return sent


def send(pub: ipc.Publisher, sample: Recorded) -> None:
    """Publish a recorded sample as it was; an object goes as its pickle, which is not read here."""
    value = sample.array
    if sample.kind == OBJECT:
        value = ipc.PackedObject(value)
    elif sample.kind == BYTES:
        value = memoryview(value)
    pub.send(value, sample.header)
