# SPDX-License-Identifier: Apache-2.0
"""The wait of a command for the subscribers of what it sends."""

import sys
from typing import Final

from shmnd import ipc

__all__ = ["wait_for_subscriber"]

_SILENT: Final = 1.0
"""Seconds of a wait that are not worth a line."""


def wait_for_subscriber(publisher: ipc.Publisher, seconds: float | None) -> None:
    """Wait for one subscriber, and say so where it takes long."""
    first = _SILENT if seconds is None else min(_SILENT, seconds)
    try:
        publisher.wait_for_subscribers(1, first)
    except TimeoutError:
        if first == seconds:
            raise
        print(
            f"shmnd: waiting for a subscriber of {publisher.topic!r}", file=sys.stderr, flush=True
        )
        publisher.wait_for_subscribers(1, None if seconds is None else seconds - first)
