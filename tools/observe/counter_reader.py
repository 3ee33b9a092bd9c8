# SPDX-License-Identifier: Apache-2.0
"""Find the counters of a namespace: those that the broker hands out, and those that /proc shows.

The broker has the processes that are registered with it, of any user. After a restart it lacks
those that have not registered again. So every process of this user is searched as well: the
segments of counters are open there, under their name. Neither way needs the processes themselves.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from shmnd import NdError
from shmnd.broker.observer import visit
from shmnd.broker.place import Place, place_of
from shmnd.broker.protocol import PassedFd
from shmnd.ring import Segment
from shmnd.ring.process.counters import CountersView

_PATIENCE: Final = 1.0
"""Seconds that a broker has for an answer."""
_NAME: Final = "/memfd:shmnd-tally"
_PROC: Final = Path("/proc")
_SHARE: Final = 20
"""A search of /proc that took a second is repeated after so many seconds."""

_File = tuple[int, int]


class Page(NamedTuple):
    """A segment of counters, and its owner."""

    pid: int
    view: CountersView


class CounterReader:
    """All counters of a namespace that can be seen from here; each is mapped once."""

    def __init__(self, namespace: str | None, group: str | None = None) -> None:
        self._namespace = namespace
        self._group = group
        self._known: dict[_File, Page] = {}
        self._searched: dict[_File, Page] = {}
        """Those that the last search of /proc found."""
        self._search_at = 0.0
        self.connects: list[dict[str, Any]] = []
        """Connects without an answer, as the broker reports connections."""
        self.processes: dict[str, int] = {}
        """Process ids by adapter, as the broker reports."""
        self.note = ""
        """Why the broker was not asked, if so."""

    @property
    def pages(self) -> list[Page]:
        """The pages as of the last `refresh`."""
        return list(self._known.values())

    def refresh(self) -> None:
        """Find which there are now."""
        try:
            place = place_of(self._namespace, group=self._group, make=False)
        except NdError as exc:
            self.note = str(exc)
            self._known = {}  # no process can use this namespace
            return
        known_to_broker = self._ask(place)
        now = time.monotonic()
        if now >= self._search_at:
            self._searched = self._search(place.mark)
            self._search_at = now + _SHARE * (time.monotonic() - now)
        # The broker may be in another PID namespace; the numbers of /proc are those of this one.
        self._known = known_to_broker | self._searched

    def print_note(self) -> None:
        """Report on stderr when the broker could not be asked."""
        if self.note:
            note = self.note.removeprefix("open_adapter: ")
            print(f"shmnd: {note}: only processes of this user are shown", file=sys.stderr)

    def _ask(self, place: Place) -> dict[_File, Page]:
        """Return the pages of the broker's adapters; none where no broker answers."""
        self.processes, self.connects, self.note = {}, [], ""
        try:
            with visit(place, _PATIENCE) as observer:
                if observer is None:
                    self.note = "no broker runs"
                    return {}
                pids = {row["process"]: row["pid"] for row in observer.records("processes")}
                self.processes = {
                    row["adapter"]: pids.get(row["process"], 0)
                    for row in observer.records("adapters")
                }
                self.connects = [
                    row
                    for row in observer.records("connections")
                    if row["stage"] in ("queued", "offered")
                ]
                return dict(self._map((row["pid"], fd) for row, fd in observer.counter_segments()))
        except (NdError, OSError) as exc:
            self.note = str(exc)
            return {}

    def _search(self, mark: int) -> dict[_File, Page]:
        """Return the pages of one place that processes of this user have."""
        return {
            file: page
            for file, page in self._map(_in_proc())
            # A forked child holds its parent's too, and the broker those of all.
            if page.view.place == mark and page.view.pid == _own_id(page.pid)
        }

    def _map(self, found: Iterable[tuple[int, PassedFd]]) -> Iterator[tuple[_File, Page]]:
        """Map new segments; a malformed one is left out."""
        known = self._searched | self._known
        for pid, fd in found:
            with contextlib.suppress(NdError, OSError):
                stat = os.fstat(fd.fileno())
                file = stat.st_dev, stat.st_ino
                page = known.get(file)
                if page is None:
                    # The size is what the kernel says, and sealed.
                    segment = Segment.attach(fd.detach(), stat.st_size, writable=False)
                    page = known[file] = Page(pid, CountersView(segment))
                yield file, page._replace(pid=pid)


def _own_id(pid: int) -> int:
    """Return the process id of a process in its own PID namespace."""
    try:
        status = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^NSpid:.*?(\d+)$", status, re.MULTILINE)
    return pid if found is None else int(found[1])


def _in_proc() -> Iterator[tuple[int, PassedFd]]:
    """Return every counters that a process of this user holds open."""
    for process in _PROC.iterdir():
        if not process.name.isdecimal():
            continue
        try:
            entries = list((process / "fd").iterdir())
        except OSError:
            continue  # another user's, or it ends just now
        for entry in entries:
            with contextlib.suppress(OSError):
                if str(entry.readlink()).startswith(_NAME):
                    fd = PassedFd(os.open(entry, os.O_RDONLY | os.O_CLOEXEC))
                    yield int(process.name), fd
