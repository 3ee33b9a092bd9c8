# SPDX-License-Identifier: Apache-2.0
"""The figures that pages take from the report of the latency suite.

A page says behind a figure which one it is, by question and subject (`7 M/s<!-- figure: 8 B
stream; shmnd -->`), or by heading, row and column (`<!-- figure: Setting up; connection; 99% -->`).
A whole table has `<!-- table: Latency over size -->` before it, and the names of the report in its
first row and column; what the report lacks is a dash there. A figure that only some reports have is
`–<!-- optional figure: ... -->`, a dash as well where the report lacks it. After a new report put
its figures into the pages with

cd tests && python -m docs.figures
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
REPORT: Final = ROOT / "docs" / "benchmarks" / "report.md"

_FIGURE: Final = re.compile(r"([\d.,]*\d)([^\d<>]*<!-- figure: (.*?) -->)")
_OPTIONAL: Final = re.compile(r"(–|[\d.,]*\d)([^\d<>]*<!-- optional figure: (.*?) -->)")
_TABLE: Final = re.compile(r"(?<=<!-- table: )(.*?)( -->\n\n)((?:\|.*\n)+)")


def tables(report: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Every row of every table: the heading above it, the names of its columns, its cells."""
    heading, columns = "", []
    for line in report.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not columns:
            columns = cells
        elif not cells[0].startswith("---"):
            yield heading, columns, cells


def looked_up(name: str, report: str) -> tuple[str, str]:
    """The figure of that name, and its unit where the table says one; KeyError without one."""
    first, second, *column = (part.strip() for part in name.split(";"))
    for heading, columns, cells in tables(report):
        row = dict(zip(columns, cells, strict=True))
        if not column and columns[0] == "question" and cells[:2] == [first, second]:
            return cells[2].split()[0], cells[3]
        if column and [first, second] in ([heading, cells[0]], cells[:2]) and row.get(column[0]):
            return row[column[0]].split()[0], ""
    raise KeyError(f"the report has no figure {name!r}")


def renewed(page: str, report: str) -> str:
    """The page with the figures of the report; ValueError for one in another unit."""

    def put(found: re.Match[str]) -> str:
        figure, unit = looked_up(found[3], report)
        if unit not in found[2].partition("<!--")[0]:
            raise ValueError(f"{found[3]!r} is in {unit}, the page says {found[0]!r}")
        return figure + found[2]

    def figure_or_dash(name: str) -> str:
        try:
            return looked_up(name, report)[0]
        except KeyError:
            return "–"

    def put_optional(found: re.Match[str]) -> str:
        return figure_or_dash(found[3]) + found[2]

    def fill(found: re.Match[str]) -> str:
        lines = found[3].splitlines()[:2]
        for _, columns, (row, *_) in tables(found[3]):
            names = [f"{found[1]}; {row}; {column}" for column in columns[1:]]
            figures = map(figure_or_dash, names)
            lines.append(f"| {' | '.join([row, *figures])} |")
        return found[1] + found[2] + "\n".join(lines) + "\n"

    return _OPTIONAL.sub(put_optional, _TABLE.sub(fill, _FIGURE.sub(put, page)))


def pages() -> list[Path]:
    """The pages that may name figures."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


if __name__ == "__main__":
    for path in pages():
        before = path.read_text()
        after = renewed(before, REPORT.read_text())
        if after != before:
            path.write_text(after)
            print(f"renewed: {path.relative_to(ROOT)}")
