# SPDX-License-Identifier: Apache-2.0
"""Plain text tables and the way numbers are written in them."""

import math
import sys
from collections.abc import Sequence

from ..measure.question import Question


def render(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: str = "") -> str:
    """Return a table as text; `right` has an `r` at the place of each column to set to the right.

    Characters that standard output cannot encode are escaped first, so that columns stay aligned.

    >>> print(render(["what", "µs"], [["Send", "0.25"]], right=" r"))
    what    µs
    ----  ----
    Send  0.25
    """
    lines = [[encodable(cell) for cell in cells] for cells in (headings, *rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if right[place : place + 1] == "r" else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(map(line, lines))


def encodable(text: str) -> str:
    """Return a text as standard output writes it: with escapes of what its encoding lacks."""
    encoding = getattr(sys.stdout, "encoding", None)
    if encoding is None or text.isascii():
        return text
    return text.encode(encoding, "backslashreplace").decode(encoding)


class Notes:
    """Long texts that a table refers to by number; each is printed once, below it."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def refer(self, text: str) -> str:
        """Return the reference to a text."""
        if text not in self._texts:
            self._texts.append(text)
        return f"- [{self._texts.index(text) + 1}]"

    def lines(self) -> list[str]:
        """Return the texts with their numbers."""
        return [f"[{place}] {text}" for place, text in enumerate(self._texts, 1)]

    def paragraphs(self) -> list[str]:
        """Return the texts for a page."""
        return [line.replace("[", "\\[", 1) for line in self.lines()]


def number(value: float) -> str:
    """Return a number with three significant digits, and never an exponent."""
    if not math.isfinite(value):
        return str(value)
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(digits, 0)}f}"


def unit(question: Question) -> str:
    """Return the unit in which people expect the answer to a question."""
    if not question.is_stream:
        return "µs"
    return "M/s" if question.size < SMALL else "GB/s"


def in_unit(question: Question, seconds: float) -> float:
    """Return seconds per message in the unit of the question."""
    if not question.is_stream:
        return seconds * 1e6
    return (1e-6 if question.size < SMALL else question.size * 1e-9) / seconds


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a page."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines
    )


SMALL = 1024
"""Streams of messages below this size are shown in messages per second, others in bytes."""
