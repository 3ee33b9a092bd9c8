# SPDX-License-Identifier: Apache-2.0
"""The bells of an adapter's completion queues, and their marks.

A bell is where only its owner writes, and its marks where all peers do, so that no peer can
silence what others ring.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shmnd.common.closing import when_dropped
from shmnd.ring import Segment
from shmnd.status import Status, error

__all__ = ["Bell", "Bells"]

_BELL_BYTES: Final = 128  # struct shmnd_bell
_MARKS_BYTES: Final = 640  # struct shmnd_marks
_IN_A_SEGMENT: Final = 96
_FIRST_BELLS: Final = 3 << 29
_FIRST_MARKS: Final = 1 << 29
_CALL: Final = "Adapter.create_completion_queue"


@dataclass(eq=False)
class Bell:
    """A place for one bell; free again when it is dropped."""

    number: int
    """Of its segment."""
    index: int
    """In that."""
    bells: Segment
    marks: Segment

    @property
    def where(self) -> tuple[int, int]:
        """How peers name it."""
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

    def take(self) -> Bell:
        """Return an unused place."""
        place = self._place()
        segments = self._segments.get(place[0])
        if segments is None:
            raise error(Status.DEVICE_REMOVED, _CALL, "the adapter was closed meanwhile")
        bell = Bell(*place, *segments)
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
        """All segments that peers write, as (number, Segment)."""
        every = self._segments.copy()
        return [(_FIRST_MARKS + number, marks) for number, (_, marks) in every.items()]

    def read_only_segments(self) -> list[tuple[int, Segment]]:
        """All segments that peers only read, as (number, Segment)."""
        every = self._segments.copy()
        return [(_FIRST_BELLS + number, bells) for number, (bells, _) in every.items()]
