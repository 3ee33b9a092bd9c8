# SPDX-License-Identifier: Apache-2.0
"""Each header opens with what it is for, and its guard is its name; an ordering has two sides."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
FRONT: Final = ROOT / "shmnd/mpi/front"
"""Headers that other projects look for by name: they say that there is no such thing."""
HEADERS: Final = sorted(
    path for path in (ROOT / "shmnd").rglob("*.h") if not path.is_relative_to(FRONT)
)
OPENING: Final = "/* SPDX-License-Identifier: Apache-2.0\n *\n * "
LABEL: Final = re.compile(r"SYNC ([a-z]+(?:-[a-z]+)*)")


def guard_of(text: str) -> str:
    found = re.search(r"^#ifndef (\w+_H)\n#define \1$", text, re.MULTILINE)
    return found[1] if found else ""


def test_the_headers_were_found() -> None:
    assert {"layout.h", "board.h", "job.h"} <= {path.name for path in HEADERS}


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: str(path.relative_to(ROOT / "shmnd")))
def test_a_header_opens_with_its_idea_and_is_guarded_by_its_name(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(OPENING)
    assert not re.match(r"\w+\.h\b", text.removeprefix(OPENING)), "the file has its name already"
    assert guard_of(text).endswith(f"{path.stem.upper()}_H")


def test_no_two_headers_have_one_guard() -> None:
    guards = Counter(guard_of(path.read_text()) for path in HEADERS)
    assert [name for name, times in guards.items() if times > 1] == []


def test_every_ordering_is_named_at_both_of_its_sides() -> None:
    named: Counter[str] = Counter()
    for path in HEADERS:
        _, _, code = path.read_text().partition("#ifndef")
        named.update(LABEL.findall(code))
    assert len(named) > 30
    assert [label for label, times in named.items() if times < 2] == []


@pytest.mark.parametrize("path", HEADERS, ids=lambda path: str(path.relative_to(ROOT / "shmnd")))
def test_no_line_of_a_header_is_too_long(path: Path) -> None:
    """clang-format leaves comments alone."""
    assert [line for line in path.read_text().splitlines() if len(line) > 100] == []


FUNCTION_COMMENT: Final = re.compile(
    r"/\* ((?:[^*]|\*(?!/))*)\*/\n(?:static |SHMND_[A-Z_]+ )[^;{}]*\)\n\{", re.MULTILINE
)
"""A comment that stands directly above a function."""
NO_VERB: Final = re.compile(
    r"(?:A|An|The|All|Any|Each|Every|One|No|None|Its|It|This|That|These|How|What|Whether|Where|When"
    r"|Which|Is|Are|Has|Does|Can|May|Bytes|After|Before|For|In|At|Of|As|By|With|Without"
    r"|(?!Pass|Process|Address|Access)[A-Z][a-z]+s)\b"
)
"""How the comment of a function begins that does not begin with an imperative."""


def test_the_comment_of_a_function_begins_with_a_verb() -> None:
    found = 0
    wrong: list[str] = []
    for path in HEADERS:
        for comment in FUNCTION_COMMENT.finditer(path.read_text()):
            found += 1
            if NO_VERB.match(comment[1]):
                wrong.append(f"{path.name}: {comment[1].splitlines()[0]}")
    assert found > 500
    assert wrong == []
