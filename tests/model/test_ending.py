# SPDX-License-Identifier: Apache-2.0
"""Teardown: a delivered message stays delivered, and both sides agree on it."""

import pytest

from model.explorer import Thread, acquire, explore, fence, load, release, store
from model.verdict import violated

# -- SYNC closing: a Send that completed is taken by the side that closes --


def closing(sender_fence: bool = True, closer_fence: bool = True) -> int:
    def sender() -> Thread:
        yield release("slot", 1)
        if sender_fence:
            yield fence()
        closed = yield load("closing")
        if not closed:
            yield store("completed", 1)

    def closer() -> Thread:
        yield store("closing", 1)
        if closer_fence:
            yield fence()
        slot = yield acquire("slot")
        yield store("taken", slot)

    def final(memory: dict[str, int]) -> None:
        assert memory["taken"] or not memory["completed"], "completed, and not delivered"

    words = dict.fromkeys(("slot", "closing", "completed", "taken"), 0)
    return explore([sender, closer], words, final)


def test_delivered_is_delivered() -> None:
    assert closing() > 10
    assert violated(lambda: closing(sender_fence=False))
    assert violated(lambda: closing(closer_fence=False))


# -- SYNC state: a side that loads the last state loads the last count and the fault --


def state(show: bool = True, acquires: bool = True) -> int:
    def closer() -> Thread:
        yield store("taken", 3)
        yield store("fault", 1)
        yield (release if show else store)("state", 4)

    def other() -> Thread:
        over = yield (acquire if acquires else load)("state")
        if over:
            taken = yield load("taken")
            fault = yield load("fault")
            assert (taken, fault) == (3, 1), "a Send that was taken is reported as lost"

    return explore([closer, other], dict.fromkeys(("taken", "fault", "state"), 0))


def test_the_end_shows_earlier_sends_as_taken() -> None:
    assert state() > 5


@pytest.mark.parametrize("part", ["show", "acquires"])
def test_the_end_needs_its_order(part: str) -> None:
    assert violated(lambda: state(**{part: False}))


# -- SYNC refused: a side that loads the refusal of a message loads the last count --


def refusal(shows: bool = True, acquires: bool = True) -> int:
    """Both sides take two messages of the other, refuse the third, and wait for nothing more."""

    def side(mine: str, theirs: str) -> Thread:
        for count in (1, 2):
            yield release(f"{mine}-taken", count)
        yield (release if shows else store)(f"{mine}-fault", 1)
        if (yield (acquire if acquires else load)(f"{theirs}-fault")):
            taken = yield load(f"{theirs}-taken")
            assert taken == 2, "a Send that was taken is reported as lost"

    words = [f"{side}-{word}" for side in "ab" for word in ("taken", "fault")]
    return explore([lambda: side("a", "b"), lambda: side("b", "a")], dict.fromkeys(words, 0))


def test_a_refusal_shows_earlier_sends_as_taken() -> None:
    assert refusal() > 10


@pytest.mark.parametrize("part", ["shows", "acquires"])
def test_a_refusal_needs_its_order(part: str) -> None:
    assert violated(lambda: refusal(**{part: False}))
