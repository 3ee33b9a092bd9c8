# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first hour with `shmnd.ipc`: the whole text of each error, as in `mistakes.txt`.

`python tests/ipc/said/test_mistakes.py` writes that file anew, for a review of the changes.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from ipc.said.mistakes import MISTAKES, Ends, ends_of
from mistaken import said, texts_in

TEXTS = Path(__file__).with_name("mistakes.txt")
VARYING = {
    r"0x[0-9a-f]{6,}": "0x…",
    r"publisher [0-9a-f]{8}": "publisher N",
    r"process \d+": "process N",
    "Can't get local object": "Can't pickle local object",  # Python 3.13
    r"local object <function (\S+) at 0x…>": r"local object '\1'",  # 3.14
}


@pytest.fixture
def ends() -> Iterator[Ends]:
    """All that mistakes are made with."""
    with contextlib.ExitStack() as stack:
        made = ends_of(stack)
        yield made
        vars(made).clear()


def text_of(ends: Ends, name: str) -> str:
    return said(lambda: MISTAKES[name](ends), VARYING)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_whole_text_of_a_mistake(ends: Ends, name: str) -> None:
    assert text_of(ends, name) == texts_in(TEXTS)[name]


def test_there_is_a_text_for_each_mistake_and_no_other() -> None:
    texts = texts_in(TEXTS)
    assert list(texts) == list(MISTAKES)
    assert len(MISTAKES) >= 125
    assert "(no error)" not in texts.values()


def main() -> None:
    """Write the file of texts."""
    lines = []
    for name in MISTAKES:
        with contextlib.ExitStack() as stack:
            made = ends_of(stack)
            lines.append(f"{name} | {text_of(made, name)}\n")
            vars(made).clear()
    TEXTS.write_text("".join(lines))


if __name__ == "__main__":
    main()
