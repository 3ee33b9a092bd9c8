# SPDX-License-Identifier: Apache-2.0
"""A window that its owner, or the peer by a message, can end while a Write is in progress.

The owner's two functions run under its lock; the peer loads the grant and sets its hazard word
without one. `memory` is written by the Write (1), and by the owner's program afterwards (5).
"""

import pytest

from model.explorer import Thread, acquire, explore, fence, load, release, store, swap
from model.verdict import violated


def writer() -> Thread:
    """The peer's Write through the window; a correct peer never has one in progress then."""
    yield store("hazard", 7)
    yield fence()
    token = yield load("token")
    if token == 7:
        yield store("memory", 1)
    yield release("hazard", 0)


def unbind(winner: str, fenced: bool, wait: bool) -> Thread:
    """SYNC hazard: the owner's half, the same in both cases."""
    bound = yield load("serial")
    if not bound:
        return
    yield store("serial", 0)
    yield store("token", 0)
    if fenced:
        yield fence()
    busy = yield acquire("hazard")
    yield store(winner, 1)
    if busy != 7 or not wait:
        yield store("over", 1)
        yield store("memory", 5)


def locked(way: Thread, lock: bool) -> Thread:
    if lock:
        held = yield swap("lock", 0, 1)
        if not held:
            return  # it tries again later; that order is explored as well
    yield from way
    if lock:
        yield release("lock", 0)


def window(lock: bool = True, fenced: bool = True, wait: bool = True) -> int:
    def by_message() -> Thread:
        yield from locked(unbind("message", fenced, wait), lock)

    def by_owner() -> Thread:
        yield from locked(unbind("owner", fenced, wait), lock)

    def final(memory: dict[str, int]) -> None:
        assert memory["message"] + memory["owner"] <= 1, "both ended the same window"
        assert not memory["over"] or memory["memory"] == 5, "a byte was copied after the end"

    names = ("hazard", "lock", "message", "owner", "over", "memory")
    memory = dict.fromkeys(names, 0) | {"token": 7, "serial": 1}
    return explore([writer, by_message, by_owner], memory, final)


def test_one_of_two_ends_a_window_and_nothing_moves_after() -> None:
    assert window() > 100


@pytest.mark.parametrize("part", ["lock", "fenced", "wait"])
def test_a_window_needs_all_of_it(part: str) -> None:
    assert violated(lambda: window(**{part: False}))


# -- SYNC recall: a message that would end a window is recalled, or has ended it --


def taken_back(claim_first: bool) -> int:
    def sender() -> Thread:
        won = yield swap("ready", 1, 8)
        yield store("cancelled", won)

    def reader() -> Thread:
        ready = yield acquire("ready")
        if ready != 1:
            return
        if not claim_first:
            yield store("token", 0)
        won = yield swap("ready", 1, 4)
        if won:
            yield store("token", 0)
            yield store("received", 1)

    def final(memory: dict[str, int]) -> None:
        assert memory["cancelled"] == (memory["token"] == 7), "the sender reports another outcome"
        assert memory["received"] == (memory["token"] == 0), "ended by a message not received"

    words = {"ready": 1, "token": 7, "cancelled": 0, "received": 0}
    return explore([sender, reader], words, final)


def test_a_message_taken_back_ends_nothing() -> None:
    assert taken_back(claim_first=True) >= 5
    assert violated(lambda: taken_back(claim_first=False))


# -- SYNC taken: requests that the sender issues after it find the window gone --


def behind(told: bool, asked: bool) -> int:
    def reader() -> Thread:
        yield store("token", 0)
        yield (release if told else store)("taken", 1)

    def sender() -> Thread:
        taken = yield (acquire if asked else load)("taken")
        if taken:
            token = yield load("token")
            assert token == 0, "a later Write went through the window"

    return explore([reader, sender], {"token": 7, "taken": 0})


def test_later_writes_find_the_window_gone() -> None:
    assert behind(told=True, asked=True) >= 5
    assert violated(lambda: behind(told=False, asked=True))
    assert violated(lambda: behind(told=True, asked=False))
