# SPDX-License-Identifier: Apache-2.0
"""The floors take the least that there is, and nothing less: each call waits for the other end."""

import mmap
import threading
from typing import Any

import pytest

from shmnd.ring.loops import LineEnd

TURNS = 200


def test_the_ends_of_a_line_take_turns() -> None:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    seen: list[int] = []

    def answer() -> None:
        end = LineEnd(page, False)
        for turn in range(TURNS):
            end.take()
            seen.append(turn)
            end.give()

    other = threading.Thread(target=answer, daemon=True)
    other.start()
    end = LineEnd(page, True)
    for turn in range(TURNS):
        assert seen == list(range(turn))
        end.give()
        end.take()
    other.join(20)
    assert not other.is_alive()


@pytest.mark.parametrize("page", [None, 7, b"\0" * 4096, bytearray(1023), memoryview(bytes(2048))])
def test_an_end_takes_a_writable_page_alone(page: Any) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        LineEnd(page, True)


def test_an_end_begins_at_a_cache_line() -> None:
    page = memoryview(mmap.mmap(-1, mmap.PAGESIZE))
    with pytest.raises(ValueError, match="at least 1,024 that begin at a cache line"):
        LineEnd(page[8:], True)
