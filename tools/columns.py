# SPDX-License-Identifier: Apache-2.0
"""Tables for people: columns, each with its heading and what it shows of a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shmnd_bench.table import render

__all__ = ["Column", "amount", "amounts", "draw", "moment", "text"]

_UNITS: Final = ("", "k", "M", "G", "T", "P")
_DAY: Final = 86400


@dataclass(frozen=True)
class Column:
    """A heading, what stands below it, and whether that is set to the right."""

    heading: str
    cell: Callable[[Mapping[str, Any]], str]
    right: bool = False


def text(heading: str, name: str = "", *, right: bool = False) -> Column:
    """Show a field as it is; one that is not known is a dash."""
    name = name or heading

    def cell(row: Mapping[str, Any]) -> str:
        return "-" if row[name] is None else str(row[name])

    return Column(heading, cell, right)


def amounts(heading: str, name: str = "") -> Column:
    """Show a field with three digits and a unit."""
    name = name or heading
    return Column(heading, lambda row: amount(row[name]), right=True)


def draw(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out a table."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    right = "".join("r" if column.right else " " for column in columns)
    table: str = render([column.heading for column in columns], cells, right=right)
    return table


def amount(value: float | None) -> str:
    """Write a number with three digits and a unit."""
    if value is None:
        return "-"
    size, unit = float(value), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g}{_UNITS[unit]}" if unit or size % 1 else f"{value:.0f}"


def moment(seconds: float | None) -> str:
    """Write a moment of the wall clock; of an earlier day, the day."""
    if seconds is None:
        return "-"
    try:
        form = "%H:%M:%S" if 0 <= time.time() - seconds < _DAY else "%Y-%m-%d"
        return time.strftime(form, time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "-"  # no clock shows that
