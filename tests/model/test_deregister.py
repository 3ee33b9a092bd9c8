# SPDX-License-Identifier: Apache-2.0
"""The memory that a large message fills is released: by a Deregister, or by the connection's end.

The message has one chunk, which either side may claim; the sender may begin at any time. `memory`
is written by the side that copies (1), and by its owner's program after the release (5). The last
value in its modification order decides.
"""

from collections.abc import Callable

import pytest

from model.explorer import Thread, acquire, add, explore, fence, load, release, store, swap
from model.verdict import violated

PUSH = 1
WORDS = dict.fromkeys(("claim", "done", "hazard", "revision", "closing", "over", "memory"), 0)


def copy_if_claimed(done_last: bool = True) -> Thread:
    won = yield swap("claim", 0, 1)
    if not won:
        return
    if not done_last:
        yield add("done", 1)
    yield store("memory", 1)
    if done_last:
        yield add("done", 1)


def sender(
    fenced: bool = True, acquires: bool = True, leave: bool = True, done_last: bool = True
) -> Thread:
    """As `shmnd_push_enter` and the copy after it."""
    yield release("hazard", PUSH)
    if fenced:
        yield fence()
    revision = yield load("revision")
    closing = yield load("closing")
    if revision == 0 and not (closing and acquires):
        yield from copy_if_claimed(done_last)
    yield (release if leave else store)("hazard", 0)


def taken_over() -> Thread:
    yield store("over", 1)
    yield store("memory", 5)


def untouched(memory: dict[str, int]) -> None:
    assert not memory["over"] or memory["memory"] == 5, "a byte was copied after the release"


def run(owner: Callable[[], Thread], **without: bool) -> int:
    return explore([lambda: sender(**without), owner], WORDS, untouched)


# -- SYNC chunk-done: a Deregister waits for the message that has matched a receive --


def deregister(
    asks: str = "chunks", acquires: bool = True, helps: bool = True, **without: bool
) -> int:
    """`asks`: whether the owner checks the count of chunks, or only for a push in progress."""

    def owner() -> Thread:
        if helps:
            yield from copy_if_claimed()
        if asks == "chunks":
            free = yield (acquire if acquires else load)("done")
        else:
            if asks == "withdrawn":
                yield store("revision", 1)
                yield fence()
                yield store("revision", 0)  # the other receives are advertised again
            hazard = yield acquire("hazard")
            free = hazard != PUSH
        if free:
            yield from taken_over()

    return run(owner, **without)


@pytest.mark.parametrize("helps", [True, False])
def test_a_deregister_waits_for_all_chunks(helps: bool) -> None:
    assert deregister(helps=helps) > 10


def test_a_deregister_needs_the_order_of_its_steps() -> None:
    assert violated(lambda: deregister(acquires=False))
    assert violated(lambda: deregister(done_last=False))


@pytest.mark.parametrize("asks", ["hazard", "withdrawn"])
def test_the_hazard_word_does_not_show_a_later_push(asks: str) -> None:
    """A matched receive cannot be withdrawn: the sender may still begin to copy."""
    assert violated(lambda: deregister(asks=asks, helps=False))


# -- SYNC closing, SYNC hazard-clear: teardown waits for it, whether it becomes whole or not --


def end(closer_fence: bool = True, look_at_hazard: bool = True, **without: bool) -> int:
    def closer() -> Thread:
        yield store("closing", 1)
        if closer_fence:
            yield fence()
        hazard = yield (acquire if look_at_hazard else load)("hazard")
        if hazard == 0:
            yield from copy_if_claimed()  # messages that arrived are taken
            yield from taken_over()

    return run(closer, **without)


def test_the_end_waits_for_the_push_and_none_begins_after_it() -> None:
    assert end() > 10


@pytest.mark.parametrize("part", ["closer_fence", "look_at_hazard", "fenced", "acquires", "leave"])
def test_the_end_needs_its_parts(part: str) -> None:
    assert violated(lambda: end(**{part: False}))
