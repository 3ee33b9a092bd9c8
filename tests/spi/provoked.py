# SPDX-License-Identifier: Apache-2.0
"""Which test provokes which documented status: the names of the tests say so."""

import ast
from collections import defaultdict
from pathlib import Path

from shmnd import Status

Cell = tuple[str, str, str]
"""Interface, method, status; completions stand under the method name `<method>_completes`."""

Listed = dict[str, dict[str, str]]


def cells_of(calls: Listed, completions: Listed) -> set[Cell]:
    """All cells of the two tables of a version."""
    return {
        (interface, method + suffix, status)
        for table, suffix in ((calls, ""), (completions, "_completes"))
        for interface, methods in table.items()
        for method, listed in methods.items()
        for status in listed.split()
    }


def files_of(folder: Path, interface: str) -> list[Path]:
    """The files below a folder with the tests of an interface, or of one part of it."""
    return sorted(folder.rglob(f"test_{interface}*.py"))


def _test_names(path: Path) -> list[str]:
    return [
        node.name.removeprefix("test_")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def _longest(name: str, words: set[str]) -> str:
    """The longest word that the name begins with, so that `query_into` is not `query`."""
    fitting = [word for word in words if name == word or name.startswith(word + "_")]
    return max(fitting, key=len, default="")


def provoked(folder: Path, cells: set[Cell]) -> dict[Cell, list[str]]:
    """Each cell with the tests in `folder` whose names say they provoke it."""
    found: dict[Cell, list[str]] = defaultdict(list)
    spelled = {status.lower(): status for status in Status.__members__}
    for interface in sorted({interface for interface, _, _ in cells}):
        methods = {method for at, method, _ in cells if at == interface}
        files = files_of(folder, interface)
        for name in (name for path in files for name in _test_names(path)):
            method = _longest(name, methods)
            status = _longest(name.removeprefix(method).lstrip("_"), set(spelled))
            if method and status:
                found[interface, method, spelled[status]].append(f"test_{name}")
    return found
