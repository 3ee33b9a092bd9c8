# SPDX-License-Identifier: Apache-2.0
"""The bells of an adapter's completion queues, and their marks (`ring/wire/bell.h`).

The bell shows peers whether its queue is armed: they map it read-only, so no peer can silence the
others. What they write to notify the queue's owner is in the marks, in a segment of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shmnd.common.closing import when_dropped
from shmnd.ring import Segment
from shmnd.status import Status, error

__all__ = ["BellPlace", "Bells"]

_BELL_BYTES: Final = 128  # struct shmnd_bell
_MARKS_BYTES: Final = 640  # struct shmnd_marks
_IN_A_SEGMENT: Final = 96
_FIRST_BELLS: Final = 3 << 29
"""The number of the first segment of bells: SHMND_FIRST_BELL_SEGMENT of layout.h."""
_FIRST_MARKS: Final = 1 << 29
"""The number of the first segment of marks: SHMND_FIRST_MARKS_SEGMENT."""
_CALL: Final = "Adapter.create_completion_queue"


@dataclass(eq=False)
class BellPlace:
    """The place of one bell and its marks; free again when this object is dropped."""

    number: int
    """The number of the two segments, without their offsets `_FIRST_...`."""
    index: int
    """The index in each of them."""
    bells: Segment
    marks: Segment

    @property
    def where(self) -> tuple[int, int]:
        """The number and the index, by which peers refer to it."""
        return self.number, self.index


class Bells:
    """All bells of one adapter.

    `announce(seg, segment, call)` announces to the peers a new segment that a call needs, and
    `withdraw(seg)` that it is gone.
    """

    def __init__(
        self, announce: Callable[[int, Segment, str], None], withdraw: Callable[[int], None]
    ) -> None:
        self._announce = announce
        self._withdraw = withdraw
        self._closed = False
        self._numbers = itertools.count()  # none is used again: peers keep what they have heard
        self._segments: dict[int, tuple[Segment, Segment]] = {}
        self._free: list[tuple[int, int]] = []

    def take(self) -> BellPlace:
        """Return an unused place."""
        place = self._place()
        segments = self._segments.get(place[0])
        if segments is None:
            raise error(Status.DEVICE_REMOVED, _CALL, "the adapter was closed meanwhile")
        bell = BellPlace(*place, *segments)
        # No Python: a place that is given back twice would be that of two bells.
        when_dropped(bell, self._free.append, place)
        return bell

    def _place(self) -> tuple[int, int]:
        while True:
            try:
                return self._free.pop()
            except IndexError:  # of all, or of those that this thread added
                self._grow()

    def _grow(self) -> None:
        number = next(self._numbers)
        bells = Segment.create(
            _BELL_BYTES * _IN_A_SEGMENT, label="bell", writable=False, call=_CALL
        )
        marks = Segment.create(_MARKS_BYTES * _IN_A_SEGMENT, label="marks", call=_CALL)
        # first: a broker that comes in between receives it too
        self._segments[number] = bells, marks
        try:
            self._announce(_FIRST_BELLS + number, bells, _CALL)
            self._announce(_FIRST_MARKS + number, marks, _CALL)
            if self._closed:
                raise error(Status.DEVICE_REMOVED, _CALL, "the adapter was closed meanwhile")
        except BaseException:
            self._segments.pop(number, None)
            self._withdraw(_FIRST_BELLS + number)
            self._withdraw(_FIRST_MARKS + number)
            raise
        self._free.extend((number, index) for index in reversed(range(_IN_A_SEGMENT)))

    def close(self) -> None:
        """Lend no more; a segment in use stays mapped until its last bell is dropped."""
        self._closed = True
        for bells, marks in self._segments.copy().values():  # another thread may add one
            bells.close_fd()
            marks.close_fd()
        self._segments.clear()
        self._free.clear()

    def segments(self) -> list[tuple[int, Segment]]:
        """Return all segments that peers write, as (number, Segment)."""
        every = self._segments.copy()
        return [(_FIRST_MARKS + number, marks) for number, (_, marks) in every.items()]

    def read_only_segments(self) -> list[tuple[int, Segment]]:
        """Return all segments that peers only read, as (number, Segment)."""
        every = self._segments.copy()
        return [(_FIRST_BELLS + number, bells) for number, (bells, _) in every.items()]
