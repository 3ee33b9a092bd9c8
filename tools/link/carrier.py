# SPDX-License-Identifier: Apache-2.0
"""The state that the parts of a link share: session, name, counts and complaints."""

from __future__ import annotations

import fnmatch
import secrets
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .session import Session

__all__ = ["OBJECTS", "Carrier", "Traffic", "matches"]

OBJECTS: Final = "{} carries objects, which take --objects"


class Traffic:
    """The counts of a link for one name in one direction."""

    def __init__(self, direction: str, kind: str, name: str) -> None:
        self.direction: Final = direction
        self.kind: Final = kind
        self.name: Final = name
        self.number = self.nbytes = self.lost = 0

    def as_row(self) -> dict[str, Any]:
        """Return the counts for a table."""
        return {
            "direction": self.direction,
            "kind": self.kind,
            "name": self.name,
            "number": self.number,
            "bytes": self.nbytes,
            "lost": self.lost,
        }


class Carrier:
    """The shared state of one link.

    `objects` allows pickled objects; `complain` is called once for each different text.
    """

    def __init__(
        self,
        session: Session,
        namespace: str | None,
        objects: bool,
        complain: Callable[[str], None],
    ) -> None:
        self.origin: Final = secrets.token_hex(8)
        """The number that stands in all keys of the link."""
        self.session: Final = session
        self.namespace: Final = namespace
        self.objects: Final = objects
        self.complaints: Final[set[str]] = set()
        self._complain: Final = complain
        self._traffic: Final[dict[tuple[str, str, str], Traffic]] = {}

    def say(self, text: str) -> None:
        """Complain, unless with this text before."""
        if text not in self.complaints:
            self.complaints.add(text)
            self._complain(text)

    def counts(self, direction: str, kind: str, name: str) -> Traffic:
        """Return the counts of a topic or service in one direction."""
        return self._traffic.setdefault((direction, kind, name), Traffic(direction, kind, name))

    def rows(self) -> list[dict[str, Any]]:
        """Return the counts of all that the link carried."""
        return [traffic.as_row() for _, traffic in sorted(self._traffic.items())]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns of the link matches a name."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
