# SPDX-License-Identifier: Apache-2.0
"""The errors of reading a board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmnd.ipc.errors import LoanLimit

if TYPE_CHECKING:
    from shmnd.ipc.common.namespace_adapter import PublisherId

__all__ = ["no_lines", "no_memory", "no_more_held", "no_room", "no_seat"]


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
