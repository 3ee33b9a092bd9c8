# SPDX-License-Identifier: Apache-2.0
"""Which room may import which: the rooms, drawn from the imports of every file.

An import counts wherever it stands: in a function, for type checkers alone, in a stub, or as a
`cimport`. What would need an exception here wants another structure.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]

PACKAGES: Final = {"shmnd": "shmnd", "tools": "shmnd_tools", "bench": "shmnd_bench"}
"""Folders, and what they are called when they are imported."""

SHARED: Final = {"shmnd.status"}
"""What every room uses, as it does `shmnd.common`."""

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


ROOMS: Final = (
    "shmnd.broker",
    "shmnd.common",
    "shmnd.handshake",
    "shmnd.messaging",
    "shmnd.mpi",
    "shmnd.nd1",
    "shmnd.ring",
    "shmnd.runtime",
    "shmnd_bench",
    "shmnd_tools",
)
"""All but the objects: every other module of `shmnd` is one of those."""

VALUES: Final = {"shmnd.address", "shmnd.info", "shmnd.overlapped"}
"""Objects of the interface that the rooms below the objects use, too."""


def room(module: str) -> str:
    for name in ROOMS:
        if module == name or module.startswith(f"{name}."):
            return name
    return "shmnd"


def strays(here: str, allowed: set[str], values: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """Imports out of a room that lead neither into an allowed one nor to what all share."""
    return [
        f"{module} -> {target}"
        for module, targets in sorted(ARROWS.items())
        if room(module) == here
        for target in sorted(targets - SHARED - values)
        if room(target) not in {here, "shmnd.common", *allowed}
    ]


def test_every_file_was_read() -> None:
    assert {room(module) for module in MODULES} >= {"shmnd", *ROOMS}
    assert "shmnd.ring.shared_memory.registry" in ARROWS["shmnd.ring.queues.queue_pair"], "cimport"
    assert "shmnd.adapter" in ARROWS["shmnd"], "an import for type checkers"
    assert "shmnd.broker.client" in ARROWS["shmnd.runtime.progress"], "an import in a function"


def test_common_code_imports_only_statuses() -> None:
    assert strays("shmnd.common", set()) == []


def test_the_data_plane_imports_nothing_above_it() -> None:
    assert strays("shmnd.ring", set()) == []


def test_the_broker_imports_no_message_path_and_no_object() -> None:
    assert strays("shmnd.broker", set()) == []


def test_the_runtime_imports_the_data_plane_and_the_broker() -> None:
    assert strays("shmnd.runtime", {"shmnd.ring", "shmnd.broker"}, {"shmnd.address"}) == []


def test_the_handshake_imports_the_runtime_and_no_object() -> None:
    below = {"shmnd.ring", "shmnd.broker", "shmnd.runtime"}
    assert strays("shmnd.handshake", below, VALUES) == []


def test_the_objects_import_no_front_end() -> None:
    below = {"shmnd.ring", "shmnd.broker", "shmnd.runtime", "shmnd.handshake", "shmnd.messaging"}
    assert strays("shmnd", below) == []


def test_messaging_imports_the_objects_and_no_front_end() -> None:
    assert strays("shmnd.messaging", {"shmnd", "shmnd.ring"}) == []


def test_version_one_imports_the_objects_and_no_front_end() -> None:
    assert strays("shmnd.nd1", {"shmnd", "shmnd.ring", "shmnd.handshake"}) == []


def test_mpi_imports_the_objects_and_no_front_end() -> None:
    assert strays("shmnd.mpi", {"shmnd", "shmnd.ring"}) == []


def test_front_ends_do_not_import_each_other() -> None:
    assert strays("shmnd_bench", {"shmnd", "shmnd.ring", "shmnd.nd1"}) == []
    everything = {"shmnd", *ROOMS} - {"shmnd_tools"}
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
