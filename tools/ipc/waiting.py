# SPDX-License-Identifier: Apache-2.0
"""The waits of commands: for subscribers, for publishers, and for the time of the next sample."""

import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from shmnd import ipc

__all__ = ["sleep_until", "wait_for_sample", "wait_for_subscriber"]

_SILENT: Final = 1.0
"""Seconds of a wait that are not worth a line."""


def sleep_until(due: float) -> None:
    """Sleep until a time of `time.monotonic`, however far it is: `time.sleep` has a limit."""
    while (left := due - time.monotonic()) > 0:
        time.sleep(min(left, 3600.0))


def wait_for_subscriber(publisher: ipc.Publisher, seconds: float | None) -> None:
    """Wait for one subscriber, unless for 0 seconds; say so where it takes long."""
    if seconds == 0:
        return
    first = _SILENT if seconds is None else min(_SILENT, seconds)
    try:
        try:
            publisher.wait_for_subscribers(1, first)
        except TimeoutError:
            if first == seconds:
                raise
            text = f"shmnd: waiting for a subscriber of {publisher.topic!r}"
            print(text, file=sys.stderr, flush=True)
            publisher.wait_for_subscribers(1, None if seconds is None else seconds - first)
    except TimeoutError as exc:  # in the words of the command line, not of the library's call
        raise TimeoutError(
            f"no subscriber of {publisher.topic!r} came within {seconds:g} s, the limit of --wait"
        ) from exc


def wait_for_sample(
    ready: ipc.WaitSet, subs: Sequence[ipc.Subscriber], seconds: float | None
) -> Sequence[Any]:
    """Wait for a first sample, and return where one is; name topics that have no publisher."""
    first = _SILENT if seconds is None else min(_SILENT, seconds)
    found = ready.wait(first)
    if found or first == seconds:
        return found
    absent = [repr(sub.name) for sub in subs if not sub.publishers]
    if absent:
        text = f"shmnd: waiting for a publisher of {', '.join(absent)}"
        print(text, file=sys.stderr, flush=True)
    return ready.wait(None if seconds is None else seconds - first)
