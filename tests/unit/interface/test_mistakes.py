# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first hour: the whole text of each error, as it stands in `mistakes.txt`.

`python tests/unit/interface/test_mistakes.py` writes that file anew, for a review of the
changes.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmnd

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from unit.interface.mistakes import MISTAKES, Ends, ends_of

TEXTS = Path(__file__).with_name("mistakes.txt")


def made() -> Iterator[Ends]:
    """All that mistakes are made with."""
    with shmnd.open_adapter() as adapter, shmnd.open_adapter() as other, shmnd.listen() as server:
        ends = ends_of(adapter)
        ends.other = ends_of(other)
        thread = threading.Thread(
            target=lambda: setattr(ends, "far", shmnd.connect(server.address))
        )
        thread.start()
        ends.near = server.accept(10)
        thread.join()
        yield ends
        ends.near.close()
        ends.far.close()
    vars(ends.other).clear()
    vars(ends).clear()


ends = pytest.fixture(made)


def text_of(ends: Ends, name: str) -> str:
    """The text of a mistake, without what differs from run to run."""
    try:
        MISTAKES[name](ends)
    except Exception as exc:
        text = f"{type(exc).__name__}: {exc}"
    else:
        text = "(no error)"
    text = re.sub(r"\(127\.0\.0\.1,[^)]*\)", "(the addresses of this host)", text)
    text = re.sub(r"\b127\.0\.0\.1:\d{5}\b", "127.0.0.1:N", text)
    text = re.sub(r"'127\.0\.0\.1', (?!70000)\d{5}\b", "'127.0.0.1', N", text)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x…", text)
    text = re.sub(r"/\S*/default\b", "(the runtime directory)", text)
    text = re.sub(r"process \d+", "process N", text)
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
    assert len(MISTAKES) >= 148
    assert "(no error)" not in texts().values()


if __name__ == "__main__":
    lines = []
    for name in MISTAKES:
        for found in made():
            lines.append(f"{name} | {text_of(found, name)}\n")
    TEXTS.write_text("".join(lines))
    os._exit(0)
