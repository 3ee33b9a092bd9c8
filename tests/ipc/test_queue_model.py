# SPDX-License-Identifier: Apache-2.0
"""The protocols of a queue, through all interleavings; with each order taken away in turn."""

import pytest

from model.explorer import (
    Op,
    Thread,
    acquire,
    explore,
    fence,
    load,
    release,
    store,
    swap,
)
from model.verdict import violated

EMPTY, ITEM, TAKEN = 0, 1, 2
LIVE, FREE = 0, 1


def _put(word: str, value: int, ordered: bool) -> Op:
    return release(word, value) if ordered else store(word, value)


def _get(word: str, ordered: bool) -> Op:
    return acquire(word) if ordered else load(word)


# -- SYNC item, SYNC freed: a block's bytes go to the consumer and the block comes back --


def block_there_and_back(weak: str) -> int:
    def producer() -> Thread:
        yield store("block", 1)
        yield _put("slot", 1, weak != "item release")
        state = yield _get("state", weak != "freed acquire")
        if state == FREE:
            yield store("block", 2)
            yield release("again", 1)

    def consumer() -> Thread:
        slot = yield _get("slot", weak != "item acquire")
        if slot:
            found = yield load("block")
            assert found != 0, "an item without its bytes"
            yield store("block", 9)  # arrays of an item are the consumer's, to write too
            yield _put("state", FREE, weak != "freed release")

    def next_consumer() -> Thread:
        slot = yield acquire("again")
        if slot:
            found = yield load("block")
            assert found == 2, "bytes of the consumer before"

    memory = dict.fromkeys(("block", "slot", "again"), 0) | {"state": LIVE}
    return explore([producer, consumer, next_consumer], memory)


def test_a_block_goes_there_and_comes_back() -> None:
    assert block_there_and_back("") > 30


@pytest.mark.parametrize("weak", ["item release", "item acquire", "freed release", "freed acquire"])
def test_each_order_of_a_block_is_needed(weak: str) -> None:
    assert violated(lambda: block_there_and_back(weak))


# -- one consumer takes an item --


def two_consumers(atomic: bool) -> int:
    def consumer(name: str) -> Thread:
        word = yield acquire("slot")
        if word != ITEM:
            return
        if atomic:
            won = yield swap("slot", ITEM, TAKEN)
        else:
            yield store("slot", TAKEN)
            won = 1
        if won:
            yield store(f"got{name}", 1)

    def final(memory: dict[str, int]) -> None:
        assert memory["gotA"] + memory["gotB"] == 1, "taken twice, or not at all"

    memory = {"slot": ITEM, "gotA": 0, "gotB": 0}
    return explore([lambda: consumer("A"), lambda: consumer("B")], memory, final)


def test_an_item_is_taken_once() -> None:
    assert two_consumers(True) > 5
    assert violated(lambda: two_consumers(False))


# -- the lap in a slot: a push that was held up does not fill the slot of a later lap --


def held_up_push(laps: bool) -> int:
    lap = 4 if laps else 0

    def slow() -> Thread:
        word = yield acquire("slot")
        pos = yield load("write")
        if word == EMPTY and pos == 0:
            won = yield swap("slot", EMPTY, ITEM)  # lap 0
            if won:
                yield store("slow", 1)

    def others() -> Thread:
        won = yield swap("slot", EMPTY, ITEM)
        if not won:
            return
        yield swap("write", 0, 1)
        yield swap("slot", ITEM, TAKEN)
        yield swap("slot", TAKEN, EMPTY + lap)
        yield store("over", 1)

    def final(memory: dict[str, int]) -> None:
        # Position 0 was filled, taken and settled: a second item there is at no position.
        assert not (memory["over"] and memory["slow"]), "filled at a position that is over"

    memory = dict.fromkeys(("slot", "write", "slow", "over"), 0)
    return explore([slow, others], memory, final)


def test_a_push_that_was_held_up_fails_when_its_lap_is_over() -> None:
    assert held_up_push(True) > 10
    assert violated(lambda: held_up_push(False))


# -- SYNC held, SYNC taking, SYNC unheld: no block of a living consumer counts as lost --


def search(weak: str) -> int:
    def consumer() -> Thread:
        if weak != "taking before the take":
            yield store("taking", 1)
        won = yield swap("slot", ITEM, TAKEN)
        assert won
        if weak == "taking before the take":
            yield store("taking", 1)
        yield store("hold", 1)
        yield _put("taking", 0, weak != "taking release")
        yield store("block", 9)
        yield release("state", FREE)
        yield _put("hold", 0, weak != "unheld release")

    def searcher() -> Thread:
        if weak == "slots before pages":
            taking = yield acquire("taking")
            hold = yield acquire("hold")
            slot = yield acquire("slot")
        else:
            slot = yield _get("slot", weak != "held acquire")
            if weak == "taking before holds":
                hold = yield acquire("hold")
                taking = yield acquire("taking")
            else:
                taking = yield _get("taking", weak != "taking acquire")
                hold = yield _get("hold", weak != "unheld acquire")
        if slot == ITEM or taking or hold:
            return
        yield store("block", 5)  # it is free, or lost: used again
        yield release("again", 1)

    def reader() -> Thread:
        again = yield acquire("again")
        if again:
            found = yield load("block")
            assert found == 5, "two had the block"

    memory = dict.fromkeys(("taking", "hold", "block", "again"), 0) | {
        "slot": ITEM,
        "state": LIVE,
    }
    return explore([consumer, searcher, reader], memory)


def test_a_search_finds_every_held_block() -> None:
    assert search("") > 100


@pytest.mark.parametrize(
    "weak",
    [
        "taking before the take",
        "slots before pages",
        "taking before holds",
        "held acquire",
        "taking release",
        "taking acquire",
        "unheld release",
        "unheld acquire",
    ],
)
def test_each_order_of_a_search_is_needed(weak: str) -> None:
    assert violated(lambda: search(weak))


# -- SYNC gate: no process sleeps while there is an item --


def gate(sleeper_fence: bool, waker_fence: bool) -> int:
    def sleeper() -> Thread:
        yield swap("gate", 0, 1)
        if sleeper_fence:
            yield fence()
        item = yield load("item")
        if not item:
            yield store("asleep", 1)

    def waker() -> Thread:
        yield store("item", 1)
        if waker_fence:
            yield fence()
        armed = yield load("gate")
        if armed:
            yield store("woken", 1)

    def final(memory: dict[str, int]) -> None:
        assert not memory["asleep"] or memory["woken"], "asleep while there is an item"

    return explore([sleeper, waker], dict.fromkeys(("gate", "item", "asleep", "woken"), 0), final)


def test_no_process_sleeps_while_there_is_an_item() -> None:
    assert gate(True, True) > 10
    assert violated(lambda: gate(False, True))
    assert violated(lambda: gate(True, False))


# -- a descriptor that arms while a waker clears stays armed --


def clearing(counts: bool) -> int:
    armed, counted = 2, 4

    def waker() -> Thread:
        yield swap("gate", armed, armed + counted)  # opened; it read the pages before
        seen = yield load("page")
        if seen:
            yield store("rung", 1)
        yield swap("gate", armed + counted, counted)

    def sleeper() -> Thread:
        yield release("page", 1)
        word = yield acquire("gate")
        if counts:
            for _ in range(3):
                won = yield swap("gate", word, (word | armed) + counted)
                if won:
                    return
                word = yield acquire("gate")
        elif not word & armed:
            yield swap("gate", word, word | armed)

    def final(memory: dict[str, int]) -> None:
        assert memory["rung"] or memory["gate"] & armed, "armed, and no waker will know"

    return explore([waker, sleeper], {"gate": armed, "page": 0, "rung": 0}, final)


def test_an_arming_is_a_change() -> None:
    assert clearing(True) > 10
    assert violated(lambda: clearing(False))
