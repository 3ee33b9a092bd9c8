# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first hour: the whole text of each error, as it stands in `mistakes.txt`.

`python tests/unit/interface/test_mistakes.py` writes that file anew, for a review of the
changes.
"""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmnd

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from mistaken import said, texts_in
from unit.interface.mistakes import MISTAKES, Ends, ends_of

TEXTS = Path(__file__).with_name("mistakes.txt")
VARYING = {
    r"\(127\.0\.0\.1,[^)]*\)": "(the addresses of this host)",
    r"\b127\.0\.0\.1:\d{5}\b": "127.0.0.1:N",
    r"'127\.0\.0\.1', (?!70000)\d{5}\b": "'127.0.0.1', N",
    r"0x[0-9a-f]{6,}": "0x…",
    r"/\S*/default\b": "(the runtime directory)",
    r"process \d+": "process N",
}


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
    return said(lambda: MISTAKES[name](ends), VARYING)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_whole_text_of_a_mistake(ends: Ends, name: str) -> None:
    assert text_of(ends, name) == texts_in(TEXTS)[name]


def test_there_is_a_text_for_each_mistake_and_no_other() -> None:
    texts = texts_in(TEXTS)
    assert list(texts) == list(MISTAKES)
    assert len(MISTAKES) >= 148
    assert "(no error)" not in texts.values()


if __name__ == "__main__":
    lines = []
    for name in MISTAKES:
        for found in made():
            lines.append(f"{name} | {text_of(found, name)}\n")
    TEXTS.write_text("".join(lines))
    os._exit(0)
