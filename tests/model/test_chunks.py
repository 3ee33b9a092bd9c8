# SPDX-License-Identifier: Apache-2.0
"""Large messages: two processes copy one, and both learn when it is finished."""

from collections.abc import Generator

import pytest

from model.explorer import Op, Thread, acquire, add, explore, load, store, swap
from model.verdict import violated

# -- SYNC chunk-done: a side that finds all counted finds all copied, and no read in progress --


def chunks(by_count: bool = True, acquires: bool = True, in_turn: bool = True) -> int:
    """Two chunks, claimed by either side; the sender then reuses its source."""

    def copy_what_is_claimed() -> Thread:
        for chunk in (0, 1):
            won = yield swap("claim", chunk, chunk + 1)
            if not won:
                continue
            if not in_turn:
                yield add("done", 1)
            bytes_read = yield load("source")
            assert bytes_read == 1, "the source was reused"
            yield store(f"sink {chunk}", bytes_read)
            if in_turn:
                yield add("done", 1) if by_count else store("done", chunk + 1)

    def sender() -> Thread:
        yield from copy_what_is_claimed()
        done = yield (acquire if acquires else load)("done")
        if done == 2:
            copied = yield load("sink 0")
            rest = yield load("sink 1")
            assert (copied, rest) == (1, 1), "finished before its bytes were there"
            yield store("source", 2)

    words = {"claim": 0, "source": 1, "sink 0": 0, "sink 1": 0, "done": 0}
    return explore([copy_what_is_claimed, sender], words)


def test_a_large_message_is_finished_when_its_bytes_are_there() -> None:
    assert chunks() > 10


@pytest.mark.parametrize("part", ["by_count", "acquires", "in_turn"])
def test_chunks_need_their_order(part: str) -> None:
    assert violated(lambda: chunks(**{part: False}))


def late_helper(tagged: bool) -> int:
    """A side that loaded the claim word during one message, and claims during the next."""

    def helper() -> Thread:
        word = yield acquire("claim")
        if word == 10:
            won = yield swap("claim", word, word + 1)
            if won:
                yield store("claimed_by_helper", 1)

    def sender() -> Thread:
        yield swap("claim", 10, 11)
        mine = yield acquire("claimed_by_helper")
        if not mine:
            yield swap("claim", 11, 20 if tagged else 10)  # reused for the next message
            yield store("next", 1)

    def final(memory: dict[str, int]) -> None:
        stolen = memory["next"] and memory["claimed_by_helper"] and memory["claim"] == 11
        assert not stolen, "a claim for the last message took a chunk of the next"

    words = {"claim": 10, "claimed_by_helper": 0, "next": 0}
    return explore([helper, sender], words, final)


def test_a_late_helper_claims_nothing_of_the_next_message() -> None:
    assert late_helper(tagged=True) > 5
    assert violated(lambda: late_helper(tagged=False))


# -- Claims from both ends: the sender's from the front, the reader's from the back --


def claim_from_end(
    from_back: bool, one_word: bool, count: int, most: int
) -> Generator[Op, int, tuple[range, int] | None]:
    """Claim up to `most` chunks: which, and how many are claimed then. None: none was left."""
    for _ in range(count):
        if one_word:  # the chunks from the front, and ten times those from the back
            word = yield load("claim")
            back, front = divmod(word, 10)
            target, unit = "claim", 10 if from_back else 1
        else:
            front = yield load("front")
            back = yield load("back")
            target, unit, word = ("back", 1, back) if from_back else ("front", 1, front)
        some = min(most, count - front - back)
        if some <= 0:
            return None
        won = yield swap(target, word, word + some * unit)
        if won:
            first = count - back - some if from_back else front
            return range(first, first + some), front + back + some
    return None


def both_ends(
    one_word: bool = True,
    by_count: bool = True,
    acquires: bool = True,
    in_turn: bool = True,
    count: int = 2,
    most: int = 1,
) -> int:
    """Chunks of one message, claimed by up to `most`; the sender then reuses its source."""

    def claim_and_copy(from_back: bool) -> Thread:
        while claim := (yield from claim_from_end(from_back, one_word, count, most)):
            chunks, claimed = claim
            if not in_turn:
                yield add("done", len(chunks))
            for chunk in chunks:
                bytes_read = yield load("source")
                assert bytes_read == 1, "the source was reused"
                yield store(f"sink {chunk}", bytes_read)
            if in_turn:
                yield add("done", len(chunks)) if by_count else store("done", claimed)

    def sender() -> Thread:
        yield from claim_and_copy(from_back=False)
        done = yield (acquire if acquires else load)("done")
        if done >= count:
            for chunk in range(count):
                assert (yield load(f"sink {chunk}")) == 1, "finished before its bytes were there"
            yield store("source", 2)

    def reader() -> Thread:
        yield from claim_and_copy(from_back=True)

    words = ("claim", "front", "back", "done", *(f"sink {chunk}" for chunk in range(count)))
    return explore([sender, reader], {**dict.fromkeys(words, 0), "source": 1})


def test_claims_from_both_ends_meet() -> None:
    assert both_ends() > 10
    assert both_ends(count=3, most=2) > 10


@pytest.mark.parametrize("part", ["one_word", "by_count", "acquires", "in_turn"])
def test_claims_from_both_ends_need_their_order(part: str) -> None:
    assert violated(lambda: both_ends(**{part: False}))
