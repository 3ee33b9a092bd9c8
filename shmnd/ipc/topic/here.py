# SPDX-License-Identifier: Apache-2.0
"""The ends of one topic within this process, which find each other without the broker."""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from shmnd.common.weak import Living

__all__ = ["admit", "announce", "enter", "enter_subscriber"]


class _End(Protocol):
    topic: str

    def _find_members(self) -> None:
        """Read which ends there are at the other side."""


_publishers: Final[weakref.WeakValueDictionary[str, _End]] = weakref.WeakValueDictionary()
_subscribers: Final[Living[_End]] = Living()


def enter(uid: str, publisher: _End) -> None:
    """Note a publisher by its adapter."""
    _publishers[uid] = publisher


def enter_subscriber(subscriber: _End) -> None:
    """Note a subscriber."""
    _subscribers.add(subscriber)


def admit(uid: str) -> None:
    """Have a publisher of this process, if `uid` is one, find the subscribers that have come."""
    publisher = _publishers.get(uid)
    if publisher is not None:
        publisher._find_members()


def announce(topic: str) -> None:
    """Have the subscribers of a topic find a publisher that has come."""
    for subscriber in _subscribers.snapshot():
        if subscriber.topic == topic:
            subscriber._find_members()


def _forget() -> None:
    _publishers.clear()
    _subscribers.clear()


os.register_at_fork(after_in_child=_forget)
