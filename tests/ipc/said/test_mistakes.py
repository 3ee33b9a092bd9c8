# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first hour with `shmnd.ipc`: the whole text of each error, as in `mistakes.txt`.

`python tests/ipc/said/test_mistakes.py` writes that file anew, for a review of the changes.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from ipc.said.mistakes import MISTAKES, Ends, ends_of

TEXTS = Path(__file__).with_name("mistakes.txt")


@pytest.fixture
def ends() -> Iterator[Ends]:
    """All that mistakes are made with."""
    with contextlib.ExitStack() as stack:
        made = ends_of(stack)
        yield made
        vars(made).clear()


def text_of(ends: Ends, name: str) -> str:
    """The text of a mistake, without what differs from run to run."""
    try:
        MISTAKES[name](ends)
    except Exception as exc:
        text = f"{type(exc).__name__}: {exc}"
    else:
        text = "(no error)"
    text = re.sub(r"0x[0-9a-f]{6,}", "0x…", text)
    text = re.sub(r"publisher [0-9a-f]{8}", "publisher N", text)
    text = re.sub(r"process \d+", "process N", text)
    text = text.replace("Can't get local object", "Can't pickle local object")  # Python 3.13
    text = re.sub(r"local object <function (\S+) at 0x…>", r"local object '\1'", text)  # 3.14
    return " ".join(text.split())


def texts() -> dict[str, str]:
    """The texts as they are to be."""
    pairs = (line.split(" | ", 1) for line in TEXTS.read_text().splitlines())
    return dict(pairs)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_whole_text_of_a_mistake(ends: Ends, name: str) -> None:
    assert text_of(ends, name) == texts()[name]


def test_there_is_a_text_for_each_mistake_and_no_other() -> None:
    assert list(texts()) == list(MISTAKES)
    assert len(MISTAKES) >= 125
    assert "(no error)" not in texts().values()


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
