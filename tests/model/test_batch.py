# SPDX-License-Identifier: Apache-2.0
"""Batches of messages: the store that publishes the first one publishes all behind it."""

import pytest

from model.explorer import Thread, acquire, explore, fence, load, release, store
from model.verdict import violated

# -- SYNC slot-ready: two messages of one slot each, the first deferred --


def held(show: bool = True, acquires: bool = True) -> int:
    def writer() -> Thread:
        yield store("payload1", 101)
        yield store("payload2", 102)
        yield store("ready2", 2)
        yield (release if show else store)("ready1", 1)

    def reader() -> Thread:
        first = yield (acquire if acquires else load)("ready1")
        if first != 1:
            return  # the reader does not read the second slot before
        payload = yield load("payload1")
        assert payload == 101, "torn"
        second = yield (acquire if acquires else load)("ready2")
        assert second == 2, "not published together"
        payload = yield load("payload2")
        assert payload == 102, "torn"

    names = ("payload1", "payload2", "ready1", "ready2")
    return explore([writer, reader], dict.fromkeys(names, 0))


def test_one_store_shows_all() -> None:
    assert held() > 10


@pytest.mark.parametrize("part", ["show", "acquires"])
def test_the_showing_needs_its_order(part: str) -> None:
    assert violated(lambda: held(**{part: False}))


# -- SYNC arm: the bell is checked once, after the store that publishes --


def wake(look_behind: bool) -> int:
    def writer() -> Thread:
        yield store("ready2", 2)
        if not look_behind:  # the check of each message would come before it is published
            yield fence()
            armed = yield load("armed")
            yield release("ready1", 1)
        else:
            yield release("ready1", 1)
            yield fence()
            armed = yield load("armed")
        if armed:
            yield store("rung", 1)

    def sleeper() -> Thread:
        yield store("armed", 1)
        yield fence()
        first = yield load("ready1")
        yield store("asleep", 0 if first else 1)

    def final(memory: dict[str, int]) -> None:
        assert not memory["asleep"] or memory["rung"], "asleep with a batch, and not rung"

    names = ("ready1", "ready2", "armed", "asleep", "rung")
    return explore([writer, sleeper], dict.fromkeys(names, 0), final)


def test_a_batch_wakes_a_sleeping_receiver() -> None:
    assert wake(look_behind=True) > 10
    assert violated(lambda: wake(look_behind=False))
