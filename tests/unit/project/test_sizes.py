# SPDX-License-Identifier: Apache-2.0
"""No folder holds too many files, and no file too many lines.

The tables list the exceptions, each with its bound and a reason. An exception that is no longer
needed, or whose bound is higher than needed, fails the test: the tables may only shrink.
"""

from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("shmnd", "tools", "bench", "tests", ".ci")
KINDS: Final = frozenset({".py", ".pyx", ".pxd", ".pyi", ".h", ".c"})

FILES: Final = 16
"""Source files in one folder; the stub and the declarations of a module count with it."""
LINES: Final = {"shmnd": 420, "tools": 420, "bench": 420, "tests": 620}
"""Lines of one file."""
STEP: Final = 100
"""A bound is at most this far above the actual number of lines."""

LARGE_FOLDERS: Final = {
    "shmnd": (22, "the interface: a file for each object, native, and options that commands share"),
    "shmnd/common": (20, "what every room uses: one small thing a file"),
}

LONG_FILES: Final = {
    "tests/native/messages/test_invalidate.c": (700, "one program, whose table runs all checks"),
    "tests/native/world.h": (720, "the model of two processes that all native tests share"),
}


def sources() -> list[Path]:
    """All source files; a .c file next to a .pyx file of the same name is generated."""
    return [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in KINDS and not (path.suffix == ".c" and path.with_suffix(".pyx").exists())
    ]


SOURCES: Final = sources()


def files_in_folders() -> dict[str, int]:
    modules: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        modules[str(path.parent.relative_to(ROOT))].add(path.stem)
    return {folder: len(names) for folder, names in modules.items()}


def lines_of_files() -> dict[str, int]:
    return {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] in LINES
    }


def too_large(sizes: dict[str, int], bounds: dict[str, int]) -> list[str]:
    return [
        f"{name}: {size}, at most {bounds[name]}"
        for name, size in sorted(sizes.items())
        if size > bounds[name]
    ]


def test_the_sources_were_found() -> None:
    assert {"shmnd", "bench/peers", "tools/verbs", "tests/spi", "tests/native"} <= set(
        files_in_folders()
    )
    assert {"shmnd/adapter.py", "shmnd/ring/queues/queue_pair.pyx"} <= set(lines_of_files())


def test_no_folder_holds_too_many_files() -> None:
    sizes = files_in_folders()
    bounds = {name: LARGE_FOLDERS.get(name, (FILES, ""))[0] for name in sizes}
    assert not too_large(sizes, bounds), "cut the folder by subject"


def test_no_file_has_too_many_lines() -> None:
    sizes = lines_of_files()
    bounds = {name: LONG_FILES.get(name, (LINES[name.partition("/")[0]], ""))[0] for name in sizes}
    assert not too_large(sizes, bounds), "give the second idea in the file a module of its own"


@pytest.mark.parametrize("folder", LARGE_FOLDERS)
def test_a_large_folder_is_an_exception_with_a_reason(folder: str) -> None:
    bound, reason = LARGE_FOLDERS[folder]
    size = files_in_folders()[folder]
    assert reason
    assert size > FILES, "take it off the table"
    assert bound - size < 8, f"lower the bound to {size}"


@pytest.mark.parametrize("file", LONG_FILES)
def test_a_long_file_is_an_exception_with_a_reason(file: str) -> None:
    bound, reason = LONG_FILES[file]
    lines = lines_of_files()
    assert reason
    assert file in lines, "it is gone: take it off the table"
    assert lines[file] > LINES[file.partition("/")[0]], "take it off the table"
    assert bound - lines[file] < STEP, f"lower the bound to {lines[file]}"
