# SPDX-License-Identifier: Apache-2.0
"""The bells of an adapter's completion queues, in small segments that peers may write."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shmnd.ring import Segment

__all__ = ["Bell", "Bells"]

_BELL_BYTES: Final = 640  # struct shmnd_bell
_BELL_STRIDE: Final = 768  # and two lines of distance
_SEGMENT_BYTES: Final = 64 * 1024
_FIRST_SEGMENT: Final = 1 << 29


@dataclass(eq=False)
class Bell:
    """A place for one bell; free again when it is dropped."""

    seg: int
    offset: int
    segment: Segment

    @property
    def where(self) -> tuple[int, int]:
        """How peers name it."""
        return self.seg, self.offset


class Bells:
    """All bells of one adapter. `announce(seg, segment)` tells the peers of a new segment."""

    def __init__(self, announce: Callable[[int, Segment], None]) -> None:
        self._announce = announce
        self._closed = False
        self._segments: list[tuple[int, Segment]] = []
        self._free: list[tuple[int, int, Segment]] = []

    def take(self) -> Bell:
        """Give a place that nobody uses."""
        if not self._free:
            self._grow()
        place = self._free.pop()
        bell = Bell(*place)
        weakref.finalize(bell, self._give_back, place).atexit = False
        return bell

    def _give_back(self, place: tuple[int, int, Segment]) -> None:
        if not self._closed:
            self._free.append(place)

    def _grow(self) -> None:
        segment = Segment.create(
            _SEGMENT_BYTES, label="bell", call="Adapter.create_completion_queue"
        )
        seg = _FIRST_SEGMENT + len(self._segments)
        self._announce(seg, segment)
        self._segments.append((seg, segment))
        offsets = range(0, _SEGMENT_BYTES - _BELL_BYTES + 1, _BELL_STRIDE)
        self._free.extend((seg, offset, segment) for offset in reversed(offsets))

    def close(self) -> None:
        """Give out no more; what is in use stays mapped until its bell is dropped."""
        self._closed = True
        for _, segment in self._segments:
            segment.close_fd()
        self._segments.clear()
        self._free.clear()

    def segments(self) -> list[tuple[int, Segment]]:
        """All segments, as (number, Segment)."""
        return list(self._segments)
