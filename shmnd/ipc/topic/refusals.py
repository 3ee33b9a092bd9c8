# SPDX-License-Identifier: Apache-2.0
"""The errors of reading a board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmnd.ipc.errors import LoanLimit

if TYPE_CHECKING:
    from shmnd.ipc.common.namespace_adapter import PublisherId

__all__ = ["are_not_next", "no_lines", "no_memory", "no_more_held", "no_room", "no_seat"]


def no_seat(publisher: PublisherId, seats: int) -> LoanLimit:
    """Return the error of a subscriber for which the publisher has no seat."""
    return LoanLimit(
        f"Subscriber: topic {publisher.topic!r} has {seats} subscribers, which is max_subscribers "
        f"of {publisher}; close one, or open the publisher with more"
    )


def no_more_held(publisher: PublisherId, most: int) -> LoanLimit:
    """Return the error of a subscriber that holds as many samples as it may."""
    return LoanLimit(
        f"Subscriber.receive: {most} samples of {publisher} are held, which is max_held; release "
        "some, or open the subscriber with a larger max_held"
    )


def no_lines(publisher: PublisherId, why: Exception) -> ValueError:
    """Return the error of lines that are not where the publisher says."""
    return ValueError(
        f"Subscriber.receive: {publisher} names lines that it does not share; nothing is received "
        f"from it: {why}"
    )


def are_not_next(where: int, entered: int, present: int) -> bool:
    """Return whether lines are to be left: another thread has entered these, or later ones.

    A board only becomes longer, so a publisher moves few times. ValueError for one that would have
    its subscribers map and keep lines for ever. A place ends with the logarithm of their number.
    """
    if where & 0xFF > entered & 0xFF:
        return False
    if where == entered or where != present:
        return True
    raise ValueError(f"a board of {1 << (entered & 0xFF)} lines moves to one that is not longer")


def no_memory(publisher: PublisherId, why: Exception) -> ValueError:
    """Return the error of a sample that is in no segment."""
    return ValueError(
        f"Subscriber.receive: {publisher} names memory that it does not share; the sample is "
        f"dropped: {why}"
    )


def no_room(publisher: PublisherId, total: int, offset: int, nbytes: int) -> ValueError:
    """Return the error of a sample that is larger than its segment."""
    return ValueError(
        f"Subscriber.receive: {publisher} names {total} bytes at {offset} of a pool of {nbytes}; "
        "the sample is dropped"
    )
