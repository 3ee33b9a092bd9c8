# SPDX-License-Identifier: Apache-2.0
"""The page of every documented status with the test that provokes it. To regenerate it:

cd tests && python -m spi.table
"""

from dataclasses import dataclass, field
from pathlib import Path

from nd1 import documented as documented1
from nd1.unprovoked import UNPROVOKED as UNPROVOKED1
from spi import documented
from spi.provoked import Cell, Listed, cells_of, files_of, provoked
from spi.unprovoked import UNPROVOKED

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "reference" / "statuses.md"


@dataclass(frozen=True)
class Version:
    """One version of the interface: what its documents list, and where its tests are."""

    title: str
    folder: str
    calls: Listed
    completions: Listed
    unprovoked: dict[Cell, str]
    cells: set[Cell] = field(init=False)
    tests: dict[Cell, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        cells = cells_of(self.calls, self.completions)
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "tests", provoked(TESTS / self.folder, cells))


VERSIONS = [
    Version("Version 2", "spi", documented.CALLS, documented.COMPLETIONS, UNPROVOKED),
    Version("Version 1", "nd1", documented1.CALLS, documented1.COMPLETIONS, UNPROVOKED1),
]

_HEAD = """\
<!-- Written by tests/spi/table.py; change the tests, not this page. -->
# Every status, and the test that provokes it

Each status that the documents of the interface list for a method has its own test, or a reason why
no program can provoke it here. *Completes* marks the status of a result in a completion queue; the
call itself returns all others, at once or through its overlapped operation.
[Readings](readings.md) lists the interpretations that some reasons refer to.
"""


def page(versions: list[Version]) -> str:
    """The whole page. ValueError for a cell with neither a test nor a reason."""
    return "\n".join([_HEAD, *(line for version in versions for line in _lines(version))])


def _lines(version: Version) -> list[str]:
    empty = version.cells - set(version.tests) - set(version.unprovoked)
    if empty:
        raise ValueError(f"neither a test nor a reason: {sorted(empty)}")
    lines = [f"## {version.title}", ""]
    for interface in sorted({interface for interface, _, _ in version.cells}):
        files = files_of(TESTS / version.folder, interface)
        paths = ", ".join(f"`{path.relative_to(TESTS.parent)}`" for path in files)
        lines += [f"### {version.title}: {interface.replace('_', ' ')}", ""]
        lines += [
            f"Tests in {paths}.",
            "",
            "| method | status | provoked by |",
            "| --- | --- | --- |",
        ]
        lines += [_row(version, cell) for cell in sorted(version.cells) if cell[0] == interface]
        lines += [""]
    return lines


def _row(version: Version, cell: Cell) -> str:
    _, method, status = cell
    name = method.removesuffix("_completes")
    shown = f"`{name}`" + (" *completes*" if name != method else "")
    tests = version.tests.get(cell)
    if not tests:
        return f"| {shown} | `{status}` | not provoked: {version.unprovoked[cell]} |"
    more = f", and {len(tests) - 1} more" if len(tests) > 1 else ""
    return f"| {shown} | `{status}` | `{tests[0]}`{more} |"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(VERSIONS))
