# SPDX-License-Identifier: Apache-2.0
"""The page of every documented status with the test that provokes it. To regenerate it:

cd tests && python -m spi.table
"""

from collections import Counter
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

The documents of the interface list the statuses that each method can return. Each of them has its
own test here, or a reason why no program can provoke it. *Completes* marks the status of a result
in a completion queue; the call itself returns all others, at once or through its overlapped
operation.

The name of a test consists of the method, the status and the condition in the last column. For
example, `test_allocate_device_removed_when_the_adapter_is_closed` is the first test of an adapter.
[Readings](readings.md) explains the interpretations that some reasons refer to.
"""


def page(versions: list[Version]) -> str:
    """The whole page. ValueError for a cell with neither a test nor a reason."""
    for version in versions:
        empty = version.cells - set(version.tests) - set(version.unprovoked)
        if empty:
            raise ValueError(f"neither a test nor a reason: {sorted(empty)}")
    reasons = _reasons(versions)
    lines = [_HEAD, *_summary(versions)]
    for version in versions:
        lines += _tables(version, reasons)
    lines += ["## Why a status is not provoked", ""]
    lines += [
        f"{number}. {reason[0].upper()}{reason[1:]}." for number, reason in enumerate(reasons, 1)
    ]
    return "\n".join([*lines, ""])


def _reasons(versions: list[Version]) -> list[str]:
    """The reasons of all cells without a test, the most frequent ones first."""
    counts = Counter(
        version.unprovoked[cell]
        for version in versions
        for cell in version.cells - set(version.tests)
    )
    return sorted(counts, key=lambda reason: (-counts[reason], reason))


def _interfaces(version: Version) -> list[str]:
    return sorted({interface for interface, _, _ in version.cells})


def _summary(versions: list[Version]) -> list[str]:
    lines = [
        "| version | interface | methods | statuses with a test | not provoked |",
        "| --- | --- | --- | --- | --- |",
    ]
    for version in versions:
        for interface in _interfaces(version):
            cells = {cell for cell in version.cells if cell[0] == interface}
            methods = {method.removesuffix("_completes") for _, method, _ in cells}
            tested = len(cells & set(version.tests))
            words = interface.replace("_", " ")
            counts = f"{len(methods)} | {tested} | {len(cells) - tested}"
            lines.append(f"| {version.title.removeprefix('Version ')} | {words} | {counts} |")
    return [*lines, ""]


def _tables(version: Version, reasons: list[str]) -> list[str]:
    lines = [f"## {version.title}", ""]
    for interface in _interfaces(version):
        files = files_of(TESTS / version.folder, interface)
        paths = ", ".join(f"`{path.relative_to(TESTS.parent)}`" for path in files)
        lines += [f"### {version.title}: {interface.replace('_', ' ')}", ""]
        lines += [
            f"Tests in {paths}.",
            "",
            "| method | status | condition |",
            "| --- | --- | --- |",
        ]
        cells = [cell for cell in sorted(version.cells) if cell[0] == interface]
        lines += [_row(version, cell, reasons) for cell in cells]
        lines += [""]
    return lines


def _row(version: Version, cell: Cell, reasons: list[str]) -> str:
    _, method, status = cell
    name = method.removesuffix("_completes")
    shown = f"`{name}`" + (" *completes*" if name != method else "")
    tests = version.tests.get(cell)
    if not tests:
        number = reasons.index(version.unprovoked[cell]) + 1
        return f"| {shown} | `{status}` | not provoked: reason {number} |"
    condition = tests[0].removeprefix(f"test_{method}_{status.lower()}").replace("_", " ").strip()
    more = f" (and {len(tests) - 1} more)" if len(tests) > 1 else ""
    return f"| {shown} | `{status}` | {condition}{more} |"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(VERSIONS))
