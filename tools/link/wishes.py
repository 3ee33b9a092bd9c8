# SPDX-License-Identifier: Apache-2.0
"""Which links want which publishers of a topic, and how far those that are waited for have come.

A link wants a publisher in a mode: LATEST, or WAITING, by which the publisher waits for its
subscribers. The caller holds the lock of the topic.
"""

from __future__ import annotations

from typing import Final

from .incoming import WAITING, WINDOW

__all__ = ["Wishes"]

_Want = tuple[str, str]
"""A publisher, and a link that wants it."""


class Wishes:
    """The wishes for the publishers of one topic."""

    def __init__(self) -> None:
        self.wants: Final[dict[str, dict[str, set[str]]]] = {}
        """By publisher, the links that want it, each with its modes."""
        self.begun: Final[set[_Want]] = set()
        """The wants whose link was sent the number with which the samples begin."""
        self._taken: Final[dict[_Want, int]] = {}
        """The last sample that a link which is waited for has published."""

    def add(self, uid: str, far: str, mode: str) -> None:
        """Note that a link wants a publisher in a mode."""
        self.wants.setdefault(uid, {}).setdefault(far, set()).add(mode)
        if mode == WAITING:
            self._taken.pop((uid, far), None)  # it counts from the next sample on

    def remove(self, uid: str, far: str, mode: str) -> None:
        """Note that a link no longer wants a publisher in a mode."""
        links = self.wants.get(uid, {})
        modes = links.get(far, set())
        modes.discard(mode)
        if not modes and links.pop(far, None) is not None:
            self._forget_link(uid, far)
            if not links:
                del self.wants[uid]

    def forget(self, uid: str) -> None:
        """Forget a publisher that has ended."""
        for far in self.wants.pop(uid, ()):
            self._forget_link(uid, far)

    def _forget_link(self, uid: str, far: str) -> None:
        self.begun.discard((uid, far))
        self._taken.pop((uid, far), None)

    def policy(self) -> str | None:
        """Return the policy of a subscriber for all links; None if no link wants anything."""
        modes = {mode for links in self.wants.values() for each in links.values() for mode in each}
        if not modes:
            return None
        return "block" if WAITING in modes else "drop_oldest"

    # -- the number with which samples begin

    def not_begun(self) -> set[str]:
        """Return the publishers of which a link has not been sent where they begin."""
        wanted = {(uid, far) for uid, links in self.wants.items() for far in links}
        return {uid for uid, _ in wanted - self.begun}

    def begin(self, uid: str) -> set[_Want]:
        """Note that all links are sent where a publisher begins; return those that were not yet."""
        links = {(uid, far) for far in self.wants.get(uid, ())} - self.begun
        self.begun.update(links)
        return links

    def begin_failed(self, links: set[_Want]) -> None:
        """Undo `begin` for these: they were not sent the number."""
        self.begun.difference_update(links)

    # -- links that are waited for

    def waited_for(self, uid: str) -> list[str]:
        """Return the links that this publisher waits for."""
        return [far for far, modes in self.wants.get(uid, {}).items() if WAITING in modes]

    def expect(self, uid: str, sequence: int) -> None:
        """Count a link from this sample on, if it is waited for and not counted yet."""
        for far in self.waited_for(uid):
            self._taken.setdefault((uid, far), sequence - 1)

    def taken(self, uid: str, far: str, sequence: int) -> bool:
        """Note how far a link has come; return whether that is news."""
        news = far in self.wants.get(uid, {}) and self._taken.get((uid, far), -1) < sequence
        if news:
            self._taken[uid, far] = sequence
        return news

    def is_full(self, uid: str, sequence: int, sent: int) -> bool:
        """Return whether too many samples are on the way; `sent` is the last one that was sent."""
        taken = [self._taken.get((uid, far), sent) for far in self.waited_for(uid)]
        behind = min(taken, default=sent)
        return behind < sent and sequence - behind > WINDOW
