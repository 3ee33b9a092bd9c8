# SPDX-License-Identifier: Apache-2.0
"""What the pages about the mechanisms name is there, by that name, in sources and tests."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted((ROOT / "docs" / "design").glob("*.md"))
RING: Final = {
    path.name: path.read_text()
    for path in (ROOT / "shmnd" / "ring").rglob("*")
    if path.suffix in {".h", ".py", ".pyi", ".pyx", ".pxd"}
}
HEADERS: Final = "\n".join(text for name, text in RING.items() if name.endswith(".h"))
SOURCES: Final = "\n".join(
    path.read_text()
    for folder in ("shmnd", "tests")
    for path in (ROOT / folder).rglob("*")
    # In shmnd/ the .c files are what Cython made.
    if path.suffix in {".h", ".py", ".pyx", ".pxd"} or (path.suffix, folder) == (".c", "tests")
)
FILES: Final = {
    path.name for folder in ("shmnd", "tests") for path in (ROOT / folder).rglob("*") if path.suffix
}

# Looked for once, and not for each page.
LABELS: Final = frozenset(re.findall(r"SYNC ([a-z-]+)", SOURCES))
TAKEN: Final = frozenset(
    step
    for named in re.findall(r"\b(?:SHMND_KILL_POINT|step)\(([^)]+)\)", SOURCES)
    for step in re.findall(r'"([a-z-]+)"', named)
)
DATA_PLANE: Final = frozenset(re.findall(r"\b(?:shmnd|SHMND)_\w+", "\n".join(RING.values())))

_TABLE_LABEL: Final = re.compile(r"^\| SYNC ([a-z-]+) \|", re.M)
_SHIFT: Final = {"": 0, " KiB": 10, " MiB": 20}
_SIZE: Final = re.compile(r"(\d[\d,]*)( [KM]iB)?(?: \w+){0,2} \(`(SHMND_\w+)`\)")


def quoted(page: Path) -> set[str]:
    """Everything in backticks, blocks left out."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize(
    "words",
    [
        r"(?i:shmnd)_[a-z_A-Z0-9]+",
        r"[\w./*-]+\.pyx",
        r"[a-z]+(-[a-z]+)+",
        r"[A-Z]\w+\.[a-z_]+",
        r"_[a-z]\w+",
        r"(?:[A-Z][a-z]+){2,}\w*",
    ],
)
def test_pages_have_words_of_each_kind(words: str) -> None:
    """The tests of single pages pass where a page has none."""
    assert any(re.fullmatch(words, name) for page in PAGES for name in quoted(page))


def every_page(test: object) -> object:
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)(test)


def value(name: str) -> int:
    """What the headers define a name as."""
    defined = re.search(rf"^#define {name} (.*?)(?: /\*.*)?$", HEADERS, re.M)
    assert defined, name
    plain = re.sub(r"\b(\d+)u?(?:ll)?\b", r"\1", defined[1])
    return int(eval(re.sub(r"SHMND_\w+", lambda other: str(value(other[0])), plain)))


def test_every_label_is_explained_once() -> None:
    explained = Counter(label for page in PAGES for label in _TABLE_LABEL.findall(page.read_text()))
    used = set(re.findall(r"SYNC ([a-z]+(?:-[a-z]+)*)", HEADERS))
    assert set(explained) == used
    assert set(explained.values()) == {1}


def test_every_header_and_compiled_module_has_its_place() -> None:
    named = quoted(ROOT / "docs" / "design" / "architecture.md")
    assert {name for name in RING if name.endswith(".h")} <= named
    assert {name.removesuffix(".pyx") for name in RING if name.endswith(".pyx")} <= named


@every_page
def test_names_of_the_data_plane_are_there(page: Path) -> None:
    names = {name for name in quoted(page) if re.fullmatch(r"(?i:shmnd)_[a-z_A-Z0-9]+", name)}
    assert names - DATA_PLANE == set()


def test_sizes_match_the_headers() -> None:
    shown = [size for page in PAGES for size in _SIZE.findall(page.read_text())]
    for number, unit, name in shown:
        assert int(number.replace(",", "")) << _SHIFT[unit] == value(name), name
    assert {name for _, _, name in shown} >= {"SHMND_EAGER_MAX", "SHMND_SHARE_MIN"}


@every_page
def test_files_are_there(page: Path) -> None:
    paths = {name for name in quoted(page) if re.fullmatch(r"[\w./*-]+\.(h|c|py|pyx|svg)", name)}
    for name in paths:
        found = name in FILES or any(ROOT.glob(name)) or any((ROOT / "shmnd").glob(name))
        assert found, name


@every_page
def test_tests_are_there(page: Path) -> None:
    """A test that is named stands in the file that is named before it, if one is."""
    file = ""
    for name in re.findall(r"`([^`\n]+)`", page.read_text()):
        if re.fullmatch(r"tests/[\w/]+\.(py|c)", name):
            file = (ROOT / name).read_text()
        elif re.fullmatch(r"test_\w+", name):
            assert re.search(rf"def {name}\b", file), name


@every_page
def test_steps_that_are_named_are_taken(page: Path) -> None:
    steps = {name for name in quoted(page) if re.fullmatch(r"[a-z]+(-[a-z]+)+", name)}
    assert steps - LABELS - TAKEN == set()


@every_page
def test_methods_are_there(page: Path) -> None:
    for name in quoted(page):
        if re.fullmatch(r"[A-Z]\w+\.[a-z_]+", name):
            cls, method = name.split(".")
            assert re.search(rf"class {cls}\b", SOURCES), name
            assert re.search(rf"def\b.*\b{method}\(", SOURCES), name


@every_page
def test_classes_and_private_functions_are_there(page: Path) -> None:
    names = {
        name for name in quoted(page) if re.fullmatch(r"_[a-z]\w+|(?:[A-Z][a-z]+){2,}\w*", name)
    }
    assert {name for name in names if not re.search(rf"\b{name}\b", SOURCES)} == set()


@every_page
def test_code_that_is_shown_is_there(page: Path) -> None:
    for block in re.findall(r"^```c\n(.*?)^```$", page.read_text(), re.S | re.M):
        lines = [line.strip() for line in block.splitlines()]
        assert "\n".join(lines) in re.sub(r"(?m)^[ \t]+", "", HEADERS)
