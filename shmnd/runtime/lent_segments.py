# SPDX-License-Identifier: Apache-2.0
"""The segments of an adapter, for a message about each, while other threads may end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shmnd.ring import Segment

__all__ = ["lent_segments"]

_Numbered = tuple[int, "Segment"]


def lent_segments(
    written: Sequence[_Numbered],
    read_only: Sequence[_Numbered],
    withdraw: Callable[[int], None],
) -> Iterator[tuple[int, int, int, bool]]:
    """Yield of each segment: number, bytes, descriptor, and whether peers may write it.

    The descriptor is open until the next segment is requested. If another thread ends a segment
    while the caller has it, the broker learns of the end before the caller announces the segment.
    Therefore it is withdrawn once more, after the caller's announcement.
    """
    for segments, may_write in ((written, True), (read_only, False)):
        for seg, segment in segments:
            lent = segment.lend()
            if lent is not None:
                yield seg, segment.size, lent.fd, may_write and not segment.sealed
                if lent.ended:
                    withdraw(seg)
