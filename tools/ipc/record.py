# SPDX-License-Identifier: Apache-2.0
"""Samples of topics, written to a file."""

import argparse
import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from shmnd import ipc
from shmnd.common.arguments import integer
from shmnd.directory import Directory
from shmnd.ipc.topic.seats import MOST_BUFFER, TOPIC
from shmnd.provider import open_adapter

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
_TURN: Final = 64
"""Samples of a topic that are recorded before those of the next one."""


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


class _Recorder:
    """Takes samples of some topics, writes them, and counts them."""

    def __init__(
        self,
        subs: list[ipc.Subscriber],
        writer: Writer,
        ready: ipc.WaitSet,
        args: argparse.Namespace,
    ) -> None:
        self._subs: Final = subs
        self._writer: Final = writer
        self._ready: Final = ready
        self._most: Final[int | None] = args.count
        self._ends: Final = math.inf if args.seconds is None else time.monotonic() + args.seconds
        self._numbers: dict[ipc.Subscriber, int] = {}
        self._descriptions: dict[ipc.Subscriber, dict[str, Any]] = {}
        self._met: dict[ipc.Subscriber, set[object]] = {sub: set() for sub in subs}
        """The publishers that have sent samples."""
        self._samples = self._nbytes = 0
        self.changed: Final[set[ipc.Subscriber]] = set()
        """Topics of which no more is recorded."""

    @property
    def is_over(self) -> bool:
        """Whether the recording is complete: by its time, its number of samples, or its topics."""
        ended = self._samples == self._most or time.monotonic() >= self._ends
        return ended or len(self.changed) == len(self._subs)

    def take_turns(self) -> None:
        """Record some samples of each topic: a fast one keeps none of the others waiting."""
        self._ready.wait(min(0.2, max(0.0, self._ends - time.monotonic())))
        for sub in self._subs:
            for _ in range(_TURN):
                if self.is_over or (sample := self._next_sample(sub)) is None:
                    break
                with sample:
                    self._add(sub, sample)

    def _next_sample(self, sub: ipc.Subscriber) -> ipc.Sample | None:
        """Return the next sample if there is one; a topic of a recording has one type."""
        if sub in self.changed:
            return None
        try:
            return sub.try_receive()
        except ipc.TypeMismatch as exc:
            self.changed.add(sub)
            self._ready.remove(sub)
            print(f"shmnd: no more is recorded of {sub.name!r}: {exc}", file=sys.stderr)
            return None

    def _add(self, sub: ipc.Subscriber, sample: ipc.Sample) -> None:
        if not _is_readable(sample, sub.name):
            return
        if sample.publisher not in self._met[sub]:
            self._describe(sub)
            self._met[sub].add(sample.publisher)
        self._nbytes += self._writer.add(self._numbers[sub], sample)
        self._samples += 1

    def _describe(self, sub: ipc.Subscriber) -> None:
        """Write the description of a topic if it has changed, as a publisher has come."""
        before = self._descriptions.get(sub, {})
        description = _described(sub, before)
        if sub not in self._numbers:
            self._numbers[sub] = self._writer.add_topic(description)
        elif description != before:
            self._writer.change_topic(self._numbers[sub], description)
        self._descriptions[sub] = description

    def print_progress(self, end: str) -> None:
        """Print how much was recorded, and how much was lost."""
        lost = sum(sub.lost for sub in self._subs)
        text = f"{self._samples} samples, {self._nbytes:,} bytes, {lost} lost"
        print(text, file=sys.stderr, end=end, flush=True)


def _record(subs: list[ipc.Subscriber], args: argparse.Namespace) -> bool:
    """Return whether all topics were recorded to the end."""
    reported = time.monotonic()
    with Writer(args.file) as writer, ipc.WaitSet(*subs) as ready, _ended_by_sigterm():
        recorder = _Recorder(subs, writer, ready, args)
        try:
            while not recorder.is_over:
                now = time.monotonic()
                if sys.stderr.isatty() and now - reported > 1:
                    reported = now
                    recorder.print_progress(end="\r")
                recorder.take_turns()
        except KeyboardInterrupt:
            pass  # the index is written, and the file is whole
        finally:
            recorder.print_progress(end="\n")
    return not recorder.changed


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, as of a `timeout` or a service manager, have the effect of Ctrl-C."""
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


def _described(sub: ipc.Subscriber, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a topic by all publishers seen, also those that have ended."""
    assert sub.type is not None  # a sample has come
    attributes, history = before.get("attributes", {}), before.get("history", 0)
    with open_adapter() as adapter:
        for entry in Directory(adapter).find(TOPIC, sub.name):
            found, kept = entry.data.get("attributes"), integer(entry.data.get("history"))
            attributes = attributes or (found if isinstance(found, dict) else {})
            history = max(history, min(kept or 0, MOST_BUFFER))
    description = sub.type.description
    return {"name": sub.name, "type": description, "attributes": attributes, "history": history}
