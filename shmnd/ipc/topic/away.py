# SPDX-License-Identifier: Apache-2.0
"""Memory of a publisher that the present broker does not know yet.

The broker that knew it has ended, and the publisher's process has made no call since.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from shmnd.neighbours import AGAIN
from shmnd.status import Status

if TYPE_CHECKING:
    from shmnd.neighbours import Neighbour

__all__ = ["Away", "missing"]


class _Source(Protocol):
    neighbour: Neighbour

    @property
    def ended(self) -> bool: ...


class Away:
    """A segment that is missing, and until when it is not asked for."""

    def __init__(self, segment: int) -> None:
        self._segment = segment
        self._until = time.monotonic() + AGAIN

    def lasts(self, source: _Source) -> bool:
        """Return whether the segment is still missing and may come."""
        return (
            time.monotonic() < self._until
            and not _is_over(source)
            and not source.neighbour.has(self._segment)
        )


def missing(source: _Source, exc: Exception, segment: int) -> Away | None:
    """Return what to wait for, where an error means that it may come yet."""
    if getattr(exc, "status", None) is Status.DEVICE_NOT_READY and not _is_over(source):
        return Away(segment)
    return None


def _is_over(source: _Source) -> bool:
    """Return whether its process will not announce the segment again."""
    return source.neighbour.dead or source.ended
