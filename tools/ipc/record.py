# SPDX-License-Identifier: Apache-2.0
"""Samples of topics, written to a file."""

import argparse
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from shmnd import ipc
from shmnd.ipc.topic.seats import MOST_BUFFER

from ..values import at_most, how_many, seconds
from .names import topic
from .recording import Writer

HELP = "record topics to a file until Ctrl-C"
EXAMPLE = "shmnd ipc record run.rec camera pose --seconds 60"
FAILURE = (
    "the file exists, the disk is full, the type of a topic changed, or no topic was named and"
    " there is none"
)
MORE_CODES = {
    0: "success; Ctrl-C and SIGTERM end a recording",
    130: "ended by Ctrl-C before the recording began",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("file", type=Path, help="file to write, which must not exist")
    parser.add_argument(
        "topic", type=topic, nargs="*", help="name of a topic (default: all there are)"
    )
    parser.add_argument(
        "--seconds", type=seconds(0, 1e7), metavar="SECONDS", help="end after so long"
    )
    parser.add_argument("--count", type=how_many, metavar="N", help="end after N samples")
    parser.add_argument(
        "--buffer",
        type=at_most(MOST_BUFFER),
        default=1024,
        metavar="N",
        help="samples of a topic that may wait for the disk; older ones are lost (default 1024)",
    )


def run(args: argparse.Namespace) -> int:
    """Record; publishers wait for nothing. The number of samples that were lost is printed."""
    names = list(dict.fromkeys(args.topic or [found.name for found in ipc.topics()]))
    if not names:
        print("shmnd: there is no topic", file=sys.stderr)
        return 1
    with contextlib.ExitStack() as stack:
        subs = [stack.enter_context(ipc.Subscriber(name, buffer=args.buffer)) for name in names]
        return 0 if _record(subs, args) else 1


def _record(subs: list[ipc.Subscriber], args: argparse.Namespace) -> bool:
    """Return whether all topics were recorded to the end."""
    numbers: dict[ipc.Subscriber, int] = {}
    changed: set[ipc.Subscriber] = set()
    samples = nbytes = 0
    began = reported = time.monotonic()
    with Writer(args.file) as writer, ipc.WaitSet(*subs) as ready, _ended_by_sigterm():
        try:
            while len(changed) < len(subs) and samples != args.count:
                now = time.monotonic()
                if args.seconds is not None and now - began >= args.seconds:
                    break
                if sys.stderr.isatty() and now - reported > 1:
                    reported = now
                    _print_progress(samples, nbytes, subs, end="\r")
                ready.wait(0.2)
                for sub in subs:
                    while sample := _next_sample(sub, changed, ready):
                        with sample:
                            if not _is_readable(sample, sub.name):
                                continue
                            if sub not in numbers:
                                numbers[sub] = writer.add_topic(_described(sub))
                            nbytes += writer.add(numbers[sub], sample)
                        samples += 1
                        if samples == args.count:
                            break
        except KeyboardInterrupt:
            pass  # the index is written, and the file is whole
        finally:
            _print_progress(samples, nbytes, subs, end="\n")
    return not changed


def _next_sample(
    sub: ipc.Subscriber, changed: set[ipc.Subscriber], ready: ipc.WaitSet
) -> ipc.Sample | None:
    """Return the next sample if there is one; a topic of a recording has one type."""
    if sub in changed:
        return None
    try:
        return sub.try_receive()
    except ipc.TypeMismatch as exc:
        changed.add(sub)
        ready.remove(sub)
        print(f"shmnd: no more is recorded of {sub.name!r}: {exc}", file=sys.stderr)
        return None


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM, as of a `timeout` or a service manager, do what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_readable(sample: ipc.Sample, name: str) -> bool:
    """Return whether a sample agrees with its description; print how it does not."""
    try:
        _ = sample.array
    except ValueError as exc:
        print(f"shmnd: a sample of {name!r} is left out: {exc}", file=sys.stderr)
        return False
    return True


def _described(sub: ipc.Subscriber) -> dict[str, object]:
    found = {each.name: each for each in ipc.topics()}.get(sub.name)
    assert sub.type is not None  # a sample has come
    attributes = dict(found.attributes) if found is not None else {}
    return {"name": sub.name, "type": sub.type.description, "attributes": attributes}


def _print_progress(samples: int, nbytes: int, subs: list[ipc.Subscriber], end: str) -> None:
    lost = sum(sub.lost for sub in subs)
    print(f"{samples} samples, {nbytes:,} bytes, {lost} lost", file=sys.stderr, end=end, flush=True)
