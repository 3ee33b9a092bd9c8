# SPDX-License-Identifier: Apache-2.0
"""Where the tallies are got from: the broker hands them out, to those who may connect.

Where it gives no answer, the processes of this user that the kernel shows are looked through for
them, so that one may see what goes on while the broker is gone or hangs too. The processes that
are looked at have no part in either.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from shmnd import NdError
from shmnd.broker.place import place_of
from shmnd.broker.protocol import Descriptor
from shmnd.broker.visitor import visit
from shmnd.ring import Segment
from shmnd.ring.tally import TallyView

_PATIENCE: Final = 1.0
"""Seconds that a broker has for an answer."""
_NAME: Final = "/memfd:shmnd-tally"
_PROC: Final = Path("/proc")

_File = tuple[int, int]


class Page(NamedTuple):
    """A segment of tallies, and whose it is."""

    pid: int
    view: TallyView


class Tallies:
    """All tallies of a namespace that can be seen from here; each is mapped once."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._known: dict[_File, Page] = {}
        self.connects: list[dict[str, Any]] = []
        """Those that nobody has answered, as the broker tells of connections."""
        self.processes: dict[str, int] = {}
        """Process ids by adapter, as the broker tells."""
        self.note = ""
        """Why the broker was not asked, if so."""

    @property
    def pages(self) -> list[Page]:
        """Give them as of the last `refresh`."""
        return list(self._known.values())

    def refresh(self) -> None:
        """See which there are now."""
        try:
            with visit(place_of(self._namespace), _PATIENCE) as visitor:
                if visitor is not None:
                    adapters = visitor.records("adapters")
                    pids = {row["process"]: row["pid"] for row in visitor.records("processes")}
                    self.processes = {
                        row["adapter"]: pids.get(row["process"], 0) for row in adapters
                    }
                    self.connects = [
                        row
                        for row in visitor.records("connections")
                        if row["stage"] in ("queued", "offered")
                    ]
                    self._take((row["pid"], fd) for row, fd in visitor.tallies())
                    self.note = ""
                    return
            self.note = "no broker runs"
        except (NdError, OSError) as exc:
            self.note = str(exc)
        self.processes, self.connects = {}, []
        try:
            self._take(_in_proc(), place_of(self._namespace).mark)
        except NdError:
            self._known = {}  # nobody can meet there

    def tell_note(self) -> None:
        """Say on stderr when the broker could not be asked."""
        if self.note:
            note = self.note.removeprefix("open_adapter: ")
            print(f"shmnd: {note}: only processes of this user are looked at", file=sys.stderr)

    def _take(self, found: Iterator[tuple[int, Descriptor]], place: int | None = None) -> None:
        """Map what is new, and let go of what is not there any more; of one place, if given."""
        seen: dict[_File, Page] = {}
        for pid, fd in found:
            with contextlib.suppress(NdError, OSError):  # whose does not make sense shows nothing
                stat = os.fstat(fd.fileno())
                file = stat.st_dev, stat.st_ino
                page = seen.get(file) or self._known.get(file) or _map(pid, fd, stat.st_size)
                if place not in (None, page.view.place):
                    continue
                # In /proc it is found with everybody who holds it; one of them is its owner.
                if file not in seen or page.view.pid == pid:
                    page = page._replace(pid=pid)
                seen[file] = page
        self._known = seen


def _map(pid: int, fd: Descriptor, size: int) -> Page:
    """Map a segment to read; its size is what the kernel says, and sealed."""
    return Page(pid, TallyView(Segment.attach(fd.detach(), size, writable=False)))


def _in_proc() -> Iterator[tuple[int, Descriptor]]:
    """Give every tally that a process of this user holds open."""
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
                    fd = Descriptor(os.open(entry, os.O_RDONLY | os.O_CLOEXEC))
                    yield int(process.name), fd
