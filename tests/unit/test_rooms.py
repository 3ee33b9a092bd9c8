# SPDX-License-Identifier: Apache-2.0
"""Who may know whom: the four rooms, drawn from the imports of every file.

An import counts wherever it stands: in a function, for type checkers alone, in a stub, or as a
`cimport`. What would need an exception here wants another structure.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]

PACKAGES: Final = {"shmnd": "shmnd", "tools": "shmnd_tools", "bench": "shmnd_bench"}
"""Folders, and what they are called when they are imported."""

SHARED: Final = {"shmnd.closing", "shmnd.status", "shmnd.steps", "shmnd.within"}
"""What every room speaks: statuses and flags, the names of steps, and what counts as a number."""

_FROM: Final = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n]*)", re.M)
_IMPORT: Final = re.compile(r"^[ \t]*c?import[ \t]+([\w.]+)", re.M)


def modules() -> dict[str, list[Path]]:
    """Every module with its files; a compiled one has a .pyx, a .pxd and a .pyi."""
    found: dict[str, list[Path]] = {}
    for folder, package in PACKAGES.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".pyx", ".pxd", ".pyi"}:
                parts = [package, *path.relative_to(ROOT / folder).with_suffix("").parts]
                if parts[-1] == "__init__":
                    parts.pop()
                found.setdefault(".".join(parts), []).append(path)
    return found


MODULES: Final = modules()


def named_in(text: str) -> Iterator[str]:
    """The modules of ours that a file imports."""
    for match in _IMPORT.finditer(text):
        yield match[1]
    for match in _FROM.finditer(text):
        for name in re.findall(r"\w+", match[2].split("#")[0]):
            below = f"{match[1]}.{name}"
            yield below if below in MODULES else match[1]


def arrows() -> dict[str, set[str]]:
    drawn: dict[str, set[str]] = {}
    for module, files in MODULES.items():
        text = "\n".join(path.read_text() for path in files)
        drawn[module] = {name for name in named_in(text) if name in MODULES} - {module}
    return drawn


ARROWS: Final = arrows()


def room(module: str) -> str:
    for name in (
        "shmnd.ring",
        "shmnd.broker",
        "shmnd.nd1",
        "shmnd.mpi",
        "shmnd_tools",
        "shmnd_bench",
    ):
        if module == name or module.startswith(f"{name}."):
            return name
    return "shmnd"


def strays(here: str, allowed: set[str]) -> list[str]:
    """Imports out of a room that lead neither into an allowed one nor to what all share."""
    return [
        f"{module} -> {target}"
        for module, targets in sorted(ARROWS.items())
        if room(module) == here
        for target in sorted(targets - SHARED)
        if room(target) != here and room(target) not in allowed
    ]


def test_every_file_was_read() -> None:
    assert {room(module) for module in MODULES} >= {
        "shmnd",
        "shmnd.ring",
        "shmnd.broker",
        "shmnd_tools",
        "shmnd_bench",
    }
    assert "shmnd.ring.memory" in ARROWS["shmnd.ring.qp"], "a cimport"
    assert "shmnd.adapter" in ARROWS["shmnd"], "an import for type checkers"
    assert "shmnd.broker.client" in ARROWS["shmnd.hub"], "an import in a function"


def test_the_data_plane_knows_nothing_above_it() -> None:
    assert strays("shmnd.ring", set()) == []


def test_the_broker_knows_no_message_path_and_no_object() -> None:
    assert strays("shmnd.broker", set()) == []


def test_the_objects_know_no_face() -> None:
    assert strays("shmnd", {"shmnd.ring", "shmnd.broker"}) == []


def test_version_one_stands_on_the_objects() -> None:
    assert strays("shmnd.nd1", {"shmnd", "shmnd.ring"}) == []
    assert strays("shmnd.mpi", {"shmnd", "shmnd.ring"}) == []


def test_no_other_face_is_known_to_a_face() -> None:
    assert strays("shmnd_bench", {"shmnd", "shmnd.ring", "shmnd.nd1"}) == []
    everything = {"shmnd", "shmnd.ring", "shmnd.broker", "shmnd.nd1", "shmnd_bench"}
    assert strays("shmnd_tools", everything) == []


def circles() -> list[list[str]]:
    """Tarjan's strongly connected components with more than one module."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in ARROWS[module]:
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            cut = stack.index(module)
            if len(stack) - cut > 1:
                found.append(sorted(stack[cut:]))
            del stack[cut:]

    for module in ARROWS:
        if module not in index:
            visit(module)
    return found


def test_there_is_no_circle() -> None:
    assert circles() == []


def test_a_circle_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ARROWS, "shmnd.status", {"shmnd.adapter"})
    assert any({"shmnd.adapter", "shmnd.status"} <= set(circle) for circle in circles())
