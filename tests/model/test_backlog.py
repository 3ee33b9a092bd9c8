# SPDX-License-Identifier: Apache-2.0
"""The backlog: one side executes a listed Send, once, and its listing is read consistently."""

from collections.abc import Generator

import pytest

from model.explorer import (
    Op,
    Thread,
    acquire,
    explore,
    load,
    loads_before,
    release,
    store,
    stores_before,
    swap,
)
from model.verdict import violated

Step = Generator[Op, int, int]
"""Operations that end with a value."""

# -- SYNC listed: a reader reads one listing, and claims the listing that it has read --

OPEN, NOT, TAKEN, COPYING, DONE, CUT = 1, 0, 2, 3, 4, 5
"""States, to be added to the number of the listing times ten."""


def relisted(
    shown: bool = True, acquires: bool = True, checked: bool = True, writes: bool = True
) -> int:
    """The sender reclaims a listing and reuses its entry while the reader reads it."""

    def sender() -> Thread:
        for number in (1, 2):
            if writes:
                yield stores_before()
            yield store("where", number)
            yield store("how long", number)
            yield (release if shown else store)("word", 10 * number + OPEN)
            if number == 1:
                won = yield swap("word", 10 + OPEN, 10 + NOT)
                if not won:
                    return

    def reader() -> Thread:
        word = yield (acquire if acquires else load)("word")
        if word % 10 != OPEN:
            return
        where = yield load("where")
        how_long = yield load("how long")
        if checked:
            yield loads_before()
        again = yield load("word")
        if again != word:
            return
        assert where == how_long == word // 10, "two listings mixed"
        won = yield swap("word", word, word - OPEN + TAKEN)
        if won:
            yield store("taken", where)

    words = {"word": 0, "where": 0, "how long": 0, "taken": 0}
    return explore([sender, reader], words)


def test_a_listing_is_read_whole() -> None:
    assert relisted() > 50


@pytest.mark.parametrize("part", ["shown", "acquires", "checked", "writes"])
def test_reading_a_listing_needs_its_order(part: str) -> None:
    assert violated(lambda: relisted(**{part: False}))


# -- one of the two sides executes it, in order --


def take_back(number: int, swapped: bool) -> Step:
    """The sender's half; returns whether it has reclaimed the Send."""
    if swapped:
        return (yield swap(f"word {number}", OPEN, NOT))
    word = yield acquire(f"word {number}")
    yield store(f"word {number}", NOT)
    return int(word == OPEN)


def take_next(number: int, numbered: bool) -> Step:
    """The reader's half; returns the number of the Send that it has now, or 0."""
    slot = yield acquire(f"slot {number}")
    if slot:
        yield store(f"sent {number}", 1)
        return number
    for wanted in (number,) if numbered or number == 2 else (1, 2):
        won = yield swap(f"word {wanted}", OPEN, TAKEN)
        if won:
            yield store(f"pulled {wanted}", 1)
            return wanted
    return 0


def one_way(swapped: bool = True, numbered: bool = True) -> int:
    """Two listed Sends; the sender reclaims and sends any, the reader claims the next."""

    def sender() -> Thread:
        for number in (1, 2):
            mine = yield from take_back(number, swapped)
            if mine:
                yield release(f"slot {number}", 1)

    def reader() -> Thread:
        got = 0
        for _ in range(3):
            taken = yield from take_next(got + 1, numbered)
            got = taken or got
            if got == 2:
                return

    def final(memory: dict[str, int]) -> None:
        for number in (1, 2):
            sent = memory[f"slot {number}"]
            assert not (sent and memory[f"pulled {number}"]), "executed by both sides"
        late = memory["pulled 2"] and memory["slot 1"] and not memory["sent 1"]
        assert not late, "the second came before the first"

    words = {"word 1": OPEN, "word 2": OPEN}
    for number in (1, 2):
        words |= {f"slot {number}": 0, f"sent {number}": 0, f"pulled {number}": 0}
    return explore([sender, reader], words, final)


def test_one_side_executes_a_listed_send_in_order() -> None:
    assert one_way() > 50


@pytest.mark.parametrize("part", ["swapped", "numbered"])
def test_executing_it_once_needs_both(part: str) -> None:
    assert violated(lambda: one_way(**{part: False}))


# -- piece by piece: the reader reads no byte after the sender has cut the message short --


def pieces(claimed: bool = True, told: bool = True) -> int:
    """Two pieces; the sender cuts the message short, or learns that it is whole."""

    def reader() -> Thread:
        for piece in (1, 2):
            if claimed:
                won = yield swap("word", TAKEN, COPYING)
                if not won:
                    return
            read = yield load("source")
            assert read == 1, "read after the sender had its memory back"
            yield store(f"sink {piece}", read)
            yield (release if told else store)("word", DONE if piece == 2 else TAKEN)

    def sender() -> Thread:
        cut = yield swap("word", TAKEN, CUT)
        if cut:
            yield store("source", 2)
            return
        word = yield acquire("word")
        if word == DONE:
            first = yield load("sink 1")
            second = yield load("sink 2")
            assert first == second == 1, "reported whole, and not copied"
            yield store("source", 2)

    def final(memory: dict[str, int]) -> None:
        assert memory["word"] != CUT or not memory["sink 2"], "cut short, and whole"

    words = {"word": TAKEN, "source": 1, "sink 1": 0, "sink 2": 0}
    return explore([reader, sender], words, final)


def test_a_message_is_cut_short_or_whole() -> None:
    assert pieces() > 10


@pytest.mark.parametrize("part", ["claimed", "told"])
def test_pieces_need_their_order(part: str) -> None:
    assert violated(lambda: pieces(**{part: False}))
