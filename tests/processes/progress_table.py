# SPDX-License-Identifier: Apache-2.0
"""What continues by itself: a table that is made by trying, with two processes.

For each kind of request, memory and size one process posts requests, and then polls or computes.
Its peer polls, polls another queue, sleeps for another event, or computes. A cell says whether the
requests complete then. Run as a program, it tries all cells, and `--update` writes the page:

    PYTHONPATH=tests python -m processes.progress_table --update
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from processes.kit import PATIENCE, Child, stopped

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "progress.md"
BEGIN: Final = "<!-- progress: begin -->"
END: Final = "<!-- progress: end -->"
MEANWHILE: Final = ("polls", "polls_another_queue", "sleeps", "computes")
YES: Final = "yes"
LATER: Final = "at its poll"
NO: Final = "no"
MIB: Final = 1 << 20


class Row(NamedTuple):
    """One kind of request, with how many of which length."""

    title: str
    name: str
    memory: str = "segment"
    nbytes: int = 8
    many: int = 1
    receives: str = ""
    """`before`, `later`, `shared`, or `short` before: which receives the target posts; or none."""
    quick: bool = False

    @property
    def ends(self) -> int:
        """How many requests of the initiator end."""
        return 2 if self.name == "send_and_write" else self.many

    @property
    def what(self) -> str:
        """Number, length and memory, as the page has them."""
        if self.name in ("bind", "invalidate", "disconnect"):
            return ""
        sizes = {8: "8 B", 40: "40 B", 5000: "5,000 B", 100_000: "100 KB"}
        size = sizes.get(self.nbytes) or f"{self.nbytes // MIB} MiB"
        many = f"{self.many} of {size}" if self.many > 1 else size
        return f"{many}, {self.memory}"


def rows() -> list[Row]:
    """Every row of the table."""
    made = [
        Row("Send, receive posted before", "send", memory, nbytes, count, "before")
        for memory in ("segment", "private", "both")
        for nbytes, count in ((8, 1), (5000, 1), (100_000, 1), (8 * MIB, 1))
    ]
    made += [
        Row("Send, receive posted before", "send", "segment", 40, 300, "before", quick=True),
        Row("Send, receive posted before", "send", "private", 5000, 100, "before", quick=True),
        Row("Send, receive posted before", "send", "segment", MIB, 16, "before", quick=True),
        Row("Send, receive posted later", "send", "segment", 8, 1, "later"),
        Row("Send, receive posted later", "send", "private", 100_000, 1, "later"),
        Row("Send, receive posted later", "send", "segment", 40, 300, "later", quick=True),
        Row("Send, receive posted later", "send", "both", 100_000, 16, "later", quick=True),
        Row("Send, longer than its receive", "send", "segment", 8, 1, "short", quick=True),
        Row("Send, longer than its receive", "send", "private", 100_000, 1, "short"),
        Row("Send to a shared receive queue", "send", "segment", 8, 1, "shared"),
        Row("Send to a shared receive queue", "send", "segment", 5000, 100, "shared", quick=True),
        Row("Send to a shared receive queue", "send", "private", 100_000, 16, "shared"),
    ]
    made += [
        Row("SendAndInvalidate", "send_and_invalidate", "segment", nbytes, 1, "before", nbytes == 8)
        for nbytes in (8, 100_000)
    ]
    made += [
        Row(
            name.capitalize(), name, memory, nbytes, quick=nbytes == 100_000 and memory == "segment"
        )
        for name in ("write", "read")
        for memory in ("segment", "private")
        for nbytes in (8, 100_000, 8 * MIB)
    ]
    return [
        *made,
        Row("Write behind a Send whose receive is posted", "send_and_write", receives="before"),
        Row("Write behind a Send whose receive is not posted", "send_and_write", quick=True),
        Row("Bind", "bind"),
        Row("Invalidate", "invalidate"),
        Row("Disconnect", "disconnect", receives="before", quick=True),
    ]


PROGRAM: Final = """
from processes.progress_end import End
End(say, hear).serve()
"""


class Process(Child):
    """One of the two; what it says is read as it comes, so that none of it is waited for twice."""

    def __init__(self) -> None:
        super().__init__(PROGRAM)
        self._read = b""

    def says(self, patience: float) -> Any:
        """Return what it says next, None when that takes longer than so many seconds."""
        assert self.process.stdout is not None
        fd, deadline = self.process.stdout.fileno(), time.monotonic() + patience
        while b"\n" not in self._read:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([fd], [], [], left)[0]:
                return None
            more = os.read(fd, 4096)
            assert more, "it ended"
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    def hear(self) -> Any:
        """Wait for what it says."""
        said = self.says(2 * PATIENCE)
        assert said is not None, "it keeps silent"
        return said


class Trial:
    """Two processes, which try one cell after the other."""

    def __init__(self) -> None:
        self.initiator, self.target = Process(), Process()
        self.addresses = [end.hear() for end in (self.initiator, self.target)]

    def close(self) -> None:
        """End both."""
        for end in (self.initiator, self.target):
            with end, contextlib.suppress(OSError, AssertionError, subprocess.TimeoutExpired):
                end.say("over")
                end.process.wait(PATIENCE)

    def cell(
        self, row: Row, initiator: str, target: str, patience: float, later: float | None = None
    ) -> str:
        """Try one cell; a completion that takes longer than `patience` seconds counts as none.

        `later` are the seconds for a target that polls in the end, if they are others.
        """
        later = patience if later is None else later
        place = self._meet(row)
        if row.receives in ("before", "shared"):
            _ask(self.target, "receive", row.many)
        if row.receives == "short":
            _ask(self.target, "receive_nothing")
        if row.name == "send_and_invalidate":
            place[1] = _ask(self.target, "lend")
        if row.name == "invalidate":
            _ask(self.initiator, "lend")
        if row.name == "read":
            _ask(self.target, "fill")
        if row.receives != "later":
            _begin(self.target, target, row.many)
        _ask(self.initiator, "post", row.name, row.many, *place)
        if row.receives == "later":
            _ask(self.target, "receive", row.many)
            _begin(self.target, target, row.many)
        if initiator == "polls":
            _begin(self.initiator, "polls", row.ends)
            came = YES if _hears(self.initiator, patience) else NO
            _stop(self.target, target)
        else:
            came = self._what_arrives(row, target, patience, later)
        for end in (self.initiator, self.target):
            _ask(end, "part")
        return came

    def _meet(self, row: Row) -> list[int]:
        shape = (row.memory, row.ends, row.nbytes)
        self.target.say(["meet", None, *shape, row.receives == "shared"])
        self.initiator.say(["meet", self.addresses[1], *shape, False])
        self.initiator.hear()
        place: list[int] = self.target.hear()
        return place

    def _what_arrives(self, row: Row, target: str, patience: float, later: float) -> str:
        """Return the cell of requests whose initiator makes no call any more."""
        if row.name in ("read", "bind", "invalidate"):
            _stop(self.target, target)
            name = "peek" if row.name == "read" else "poll_once"
            return YES if _ask(self.initiator, name, row.ends) else NO
        if target == "polls" and row.receives:
            return YES if _hears(self.target, patience) else NO
        with stopped(self.initiator.pid):
            deadline = time.monotonic() + patience
            while True:
                time.sleep(0.05)  # a while in which the target does what it does
                _stop(self.target, target)
                if row.name != "disconnect" and _ask(self.target, "peek", row.ends):
                    return YES
                if target == "computes" or time.monotonic() > deadline:
                    break
                _begin(self.target, target, row.many)
            if not row.receives:
                return NO
            _begin(self.target, "polls", row.many)
            return LATER if _hears(self.target, later) else NO


def _ask(end: Process, *command: Any) -> Any:
    """Have a process carry out a command; what it says of requests that ended is passed over."""
    end.say(list(command))
    while (answer := end.hear()) == "ended":
        pass
    return answer


def _begin(end: Process, what: str, wanted: int) -> None:
    """Have a process do something until `_stop`, or until it is asked for something else."""
    assert _ask(end, what, wanted) == "in"
    deadline = time.monotonic() + PATIENCE
    while what == "sleeps" and _state(end.pid) != "S":
        assert time.monotonic() < deadline, "it never sleeps"
        time.sleep(0.001)


def _stop(end: Process, what: str) -> None:
    if what == "sleeps":
        os.kill(end.pid, signal.SIGINT)
        while end.hear() != "awake":
            pass


def _hears(end: Process, patience: float) -> bool:
    """Wait for a process to say that its requests have ended."""
    return bool(end.says(patience) == "ended")


def _state(pid: int) -> str:
    """Return the state of a process, as the kernel has it: S when it sleeps."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# -- the page --

Cells = dict[Row, list[str]]
"""By row: with an initiator that polls, then with one that computes, the target in four ways."""


def columns() -> list[tuple[str, str]]:
    """Return what both do, for each cell of a row."""
    return [(initiator, target) for initiator in ("polls", "computes") for target in MEANWHILE]


def try_all(patience: float) -> Cells:
    """Try every cell."""
    trial = Trial()
    try:
        return {row: [trial.cell(row, *column, patience) for column in columns()] for row in rows()}
    finally:
        trial.close()


def render(cells: Cells) -> str:
    """Return the tables as the page has them."""
    lines: list[str] = []
    for place, initiator in enumerate(("polls", "computes")):
        came = slice(place * len(MEANWHILE), (place + 1) * len(MEANWHILE))
        names = (name.replace("_", " ") for name in MEANWHILE)
        lines += [f"### The initiator {initiator}", ""]
        lines.append(f"| request | size and memory | target: {' | '.join(names)} |")
        lines.append(f"|{' --- |' * (2 + len(MEANWHILE))}")
        for row, every in cells.items():
            lines.append(f"| {row.title} | {row.what} | {' | '.join(every[came])} |")
        lines.append("")
    return "\n".join(lines).strip()


def shown() -> dict[tuple[str, str], list[str]]:
    """Return the cells that the page has, by title and size of their row."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    found: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        title, *cells = [cell.strip() for cell in line.split("|")[1:-1]] or [""]
        if title and title not in ("request", "---"):
            found.setdefault((title, cells[0]), []).extend(cells[1:])
    return found


def main() -> None:
    """Try all cells, and print or write them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--update", action="store_true", help="write the page")
    parser.add_argument("--patience", type=float, default=1.0, help="seconds that are never")
    options = parser.parse_args()
    table = render(try_all(options.patience))
    if options.update:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")
    else:
        print(table)


if __name__ == "__main__":
    main()
