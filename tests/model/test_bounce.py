# SPDX-License-Identifier: Apache-2.0
"""The bounce area: a message is whole, and its bytes stay until the receiver has copied them."""

import pytest

from model.explorer import Thread, acquire, explore, load, release, store
from model.verdict import violated

# -- SYNC slot-ready and SYNC taken: two messages, one after the other in the same bytes --


def area(publish: bool = True, acquires: bool = True) -> int:
    def sender() -> Thread:
        for message in range(2):
            if message:
                taken = yield acquire("taken")
                if taken < message:
                    return  # no room: another way is chosen
            yield store("first", 100 + message)
            yield store("last", 100 + message)
            yield (release if publish else store)(f"ready{message}", 1)

    def receiver() -> Thread:
        for message in range(2):
            if not (yield (acquire if acquires else load)(f"ready{message}")):
                return
            first = yield load("first")
            last = yield load("last")
            assert (first, last) == (100 + message, 100 + message), "torn or overwritten"
            yield release("taken", message + 1)

    names = ("first", "last", "ready0", "ready1", "taken")
    return explore([sender, receiver], dict.fromkeys(names, 0))


def test_a_bounced_message_is_whole() -> None:
    assert area() > 20


@pytest.mark.parametrize("part", ["publish", "acquires"])
def test_the_area_needs_its_order(part: str) -> None:
    assert violated(lambda: area(**{part: False}))


def reuse(wait: bool) -> int:
    def sender() -> Thread:
        yield store("bytes", 1)
        yield release("ready", 1)
        if wait and not (yield acquire("taken")):
            return
        yield store("bytes", 2)

    def receiver() -> Thread:
        if not (yield acquire("ready")):
            return
        assert (yield load("bytes")) == 1, "overwritten before it was copied"
        yield release("taken", 1)

    return explore([sender, receiver], dict.fromkeys(("bytes", "ready", "taken"), 0))


def test_bytes_are_written_again_only_when_they_were_taken() -> None:
    assert reuse(wait=True) >= 3
    assert violated(lambda: reuse(wait=False))
