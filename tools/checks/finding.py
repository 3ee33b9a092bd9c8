# SPDX-License-Identifier: Apache-2.0
"""The finding of a check of the doctor, and the files that the checks read."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shmnd.ring.shared_memory.bounds import Mount, mounts


class Level(enum.StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """It works, with a drawback or a danger."""
    PROBLEM = "problem"
    """Something does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check with, unless it is ok, its meaning and the remedy."""

    check: str
    level: Level
    found: str
    meaning: str = ""
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """Return a finding of a successful check."""
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, meaning: str, remedy: str) -> Finding:
    """Return a finding of a check that works with a drawback or a danger."""
    return Finding(check, Level.WARNING, found, meaning, remedy)


def problem(check: str, found: str, meaning: str, remedy: str) -> Finding:
    """Return a finding of a failed check."""
    return Finding(check, Level.PROBLEM, found, meaning, remedy)


def mebibytes(nbytes: int) -> str:
    """Return a size as text."""
    return f"{nbytes / (1 << 20):,.0f} MiB" if nbytes >= 10 << 20 else f"{nbytes >> 10:,} KiB"


@dataclass(frozen=True, slots=True)
class Host:
    """The files with the settings of the machine, below `root`."""

    root: Path = Path("/")

    def path(self, name: str) -> Path:
        """Return the place of a file whose usual path is `name`."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str:
        """Return the contents of a file; an empty text if it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError:
            return ""

    def mounts(self) -> Iterator[Mount]:
        """Go through the mounts that this process sees, the innermost of a place last."""
        return mounts(self.read)
