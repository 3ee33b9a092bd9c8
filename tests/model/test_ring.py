# SPDX-License-Identifier: Apache-2.0
"""The slot ring: messages are whole, in order, and received once."""

import pytest

from model.explorer import Thread, acquire, explore, load, release, store, swap
from model.verdict import violated

# -- SYNC slot-ready, SYNC slot-free: two slots, three messages, so that a slot is reused --


def slots(publish: bool = True, acquires: bool = True, wait_for_room: bool = True) -> int:
    def writer() -> Thread:
        for position in range(3):
            if position >= 2 and wait_for_room:
                read = yield acquire("read_pos")
                if read < position - 1:
                    return  # no room: a writer does not wait, it tries again later
            slot = position % 2
            yield store(f"payload{slot}", 100 + position)
            yield (release if publish else store)(f"ready{slot}", position + 1)

    def reader() -> Thread:
        for position in range(2):
            slot = position % 2
            ready = yield (acquire if acquires else load)(f"ready{slot}")
            if ready != position + 1:
                return
            payload = yield load(f"payload{slot}")
            assert payload == 100 + position, "torn or overwritten"
            yield release("read_pos", position + 1)

    names = ("ready0", "ready1", "payload0", "payload1", "read_pos")
    return explore([writer, reader], dict.fromkeys(names, 0))


def test_slots_are_whole_and_never_overwritten() -> None:
    assert slots() > 50


@pytest.mark.parametrize("part", ["publish", "acquires", "wait_for_room"])
def test_slots_need_their_order(part: str) -> None:
    assert violated(lambda: slots(**{part: False}))


# -- SYNC recall: a message is either received or recalled --


def recall(by_swap: bool) -> int:
    def ender(mark: int, name: str) -> Thread:
        if by_swap:
            won = yield swap("ready", 1, mark)
        else:
            won = int((yield acquire("ready")) == 1)
            yield release("ready", mark)
        yield store(name, won)

    def final(memory: dict[str, int]) -> None:
        assert memory["recalled"] + memory["received"] == 1, "both, or neither"

    threads = [lambda: ender(8, "recalled"), lambda: ender(4, "received")]
    return explore(threads, {"ready": 1, "recalled": 0, "received": 0}, final)


def test_a_message_is_received_or_taken_back() -> None:
    assert recall(by_swap=True) >= 5
    assert violated(lambda: recall(by_swap=False))


# -- SYNC taken: the receiver's copy of a message comes before the sender's next request --


def taken(told: bool = True, heard: bool = True) -> int:
    def receiver() -> Thread:
        yield store("sink", 1)  # the message is copied out
        yield (release if told else store)("taken", 1)

    def sender() -> Thread:
        over = yield (acquire if heard else load)("taken")
        if over:
            yield store("written", 1)
            yield store("sink", 2)  # a Write after the Send to the same place

    def final(memory: dict[str, int]) -> None:
        assert not memory["written"] or memory["sink"] == 2, "an earlier message overwrote a Write"

    return explore([receiver, sender], dict.fromkeys(("sink", "taken", "written"), 0), final)


def test_the_copy_of_a_completed_send_precedes_later_writes() -> None:
    assert taken() > 5
    assert violated(lambda: taken(told=False))
    assert violated(lambda: taken(heard=False))
