# SPDX-License-Identifier: Apache-2.0
"""Tables for people: columns, each with its heading and what it shows of a row."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shmnd_bench.report.table import render

from .output import fitted, printable

__all__ = ["Column", "amount", "amounts", "counted", "draw", "moment", "size", "sizes", "text"]

_UNITS: Final = ("", "k", "M", "G", "T", "P")
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COLOURS: Final = {
    **dict.fromkeys(("connected", "running"), 32),
    **dict.fromkeys(("asking", "connecting", "attached"), 33),
    **dict.fromkeys(("down", "stopped", "tracing-stop", "zombie", "dead", "gone"), 31),
}
"""Of the states that ought to be seen at once."""
_DAY: Final = 86400


@dataclass(frozen=True)
class Column:
    """A heading, the text of its cells, and whether they are aligned to the right."""

    heading: str
    cell: Callable[[Mapping[str, Any]], str]
    right: bool = False


def text(heading: str, name: str = "", *, right: bool = False) -> Column:
    """Return a column that shows a field as it is, and a dash for an unknown one."""
    name = name or heading

    def cell(row: Mapping[str, Any]) -> str:
        return "-" if row[name] is None else printable(str(row[name]))

    return Column(heading, cell, right)


def counted(number: int, one: str, more: str = "") -> str:
    """Return a number of things with their noun, as text."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"


def amounts(heading: str, name: str = "") -> Column:
    """Return a column that shows a field with three digits and a unit."""
    name = name or heading
    return Column(heading, lambda row: amount(row[name]), right=True)


def sizes(heading: str, name: str = "") -> Column:
    """Return a column that shows a number of bytes in a binary unit."""
    name = name or heading
    return Column(heading, lambda row: size(row[name]), right=True)


def draw(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a table; on a terminal it has its width, and states are in colour."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    right = "".join("r" if column.right else " " for column in columns)
    table: str = render([column.heading for column in columns], cells, right=right)
    if not sys.stdout.isatty():
        return table
    lines = [fitted(line) for line in table.splitlines()]
    return "\n".join(lines if os.environ.get("NO_COLOR") else _coloured(lines))


def _coloured(lines: list[str]) -> list[str]:
    """Return the lines with the states coloured; the second line shows where columns are."""
    spans = [
        found.span()
        for found in re.finditer("-+", lines[1])
        if lines[0][slice(*found.span())].strip() in ("state", "process")
    ]
    done = lines[:2]
    for line in lines[2:]:
        for start, end in reversed(spans):
            colour = _COLOURS.get(line[start:end].strip())
            if colour is not None:
                line = f"{line[:start]}\x1b[{colour}m{line[start:end]}\x1b[0m{line[end:]}"
        done.append(line)
    return done


def amount(value: float | None) -> str:
    """Return a number with three digits and a unit, as text."""
    if value is None:
        return "-"
    size, unit = float(value), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g}{_UNITS[unit]}" if unit or size % 1 else f"{value:.0f}"


def size(nbytes: float | None) -> str:
    """Return a number of bytes with three digits and a binary unit, as text."""
    if nbytes is None:
        return "-"
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_SIZES[unit]}"


def moment(seconds: float | None) -> str:
    """Return a moment of the wall clock as text: the time, or the date of an earlier day."""
    if seconds is None:
        return "-"
    try:
        form = "%H:%M:%S" if 0 <= time.time() - seconds < _DAY else "%Y-%m-%d"
        return time.strftime(form, time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "-"  # no clock shows that
