# SPDX-License-Identifier: Apache-2.0
"""A function that returns nothing does not say that it returns something."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("shmnd", "tools", "bench", "tests", "docs")
KINDS = (".py", ".pyi", ".pyx")

ARGUMENTS = r"\((?:(?!\bdef\b)[^\"#])*?\)"
NOTHING = (
    rf"(?:def (?P<name>\w+){ARGUMENTS} -> None:"
    r"|cdef (?:inline )?void (?P<c>\w+)\([^\"#:()]*\)[\w ]*:)"
)
"""The head of a function without a result, in Python or in Cython."""
DOCUMENTS_RETURN = re.compile(NOTHING + r'\s*\n\s+"""Return\b(?! None)')


def offenders(path: str, text: str) -> Iterator[str]:
    """Return the functions of a text that say that they return something and do not."""
    for found in DOCUMENTS_RETURN.finditer(text):
        line = text.count("\n", 0, found.end()) + 1
        yield f"{path}:{line}: {found['name'] or found['c']}"


def test_a_function_without_a_result_does_not_document_one() -> None:
    read = found = 0
    wrong: list[str] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS:
                text = path.read_text()
                read += 1
                found += len(re.findall(NOTHING, text))
                wrong += offenders(str(path.relative_to(ROOT)), text)
    assert read > 500, "the sources were not found"
    assert found > 1000, "functions without a result were not found"
    assert not wrong, "\n".join(wrong)


def test_the_check_finds_such_a_function() -> None:
    python = (
        'def give(\n    self, to: int\n) -> None:\n    """Return a process its descriptor."""\n'
    )
    cython = 'cdef void put(self, int n) noexcept:\n    """Return it."""\n'
    right = (
        'def get(self) -> int:\n    """Return it."""\ndef end(self) -> None:\n    """End it."""\n'
    )
    assert list(offenders("a.py", python)) == ["a.py:4: give"]
    assert list(offenders("a.pyx", cython)) == ["a.pyx:2: put"]
    assert not list(offenders("a.py", right))
