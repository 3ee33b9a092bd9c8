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


def test_numbers_that_came_earlier_are_taken_one_by_one() -> None:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    here, there = LineEnd(page, True), LineEnd(page, False)
    here.give()
    here.give()
    there.take()
    there.take()


@pytest.mark.parametrize("page", [None, 7, b"\0" * 4096, memoryview(bytes(2048))])
def test_an_end_takes_a_writable_page_alone(page: Any) -> None:
    with pytest.raises((TypeError, BufferError)):
        LineEnd(page, True)


def test_an_end_takes_no_less_than_both_lines() -> None:
    page = memoryview(mmap.mmap(-1, mmap.PAGESIZE))
    with pytest.raises(ValueError, match=r"1023 bytes; at least 1,024"):
        LineEnd(page[:1023], True)


def test_an_end_begins_at_a_cache_line() -> None:
    page = memoryview(mmap.mmap(-1, mmap.PAGESIZE))
    with pytest.raises(ValueError, match="at least 1,024 that begin at a cache line"):
        LineEnd(page[8:], True)
