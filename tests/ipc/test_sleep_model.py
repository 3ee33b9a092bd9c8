# SPDX-License-Identifier: Apache-2.0
"""Long sleeps at a bell, through all interleavings; with each step and order taken away in turn.

What the kernel does is modelled as it is specified: a process that has ended has stored all that it
ever stores ("dead" is a release), and a process that asks for it after that sees its end (an
acquire).
"""

import pytest

from model.explorer import (
    Thread,
    acquire,
    add,
    clear_bits,
    explore,
    fence,
    load,
    release,
    store,
    swap,
)
from model.verdict import violated

# -- SYNC gate, with a changer that is killed before it rings --


def changer_that_dies(weak: str) -> int:
    def changer() -> Thread:
        yield store("item", 1)  # and is killed before it rings
        if weak == "end orders stores":
            yield store("dead", 1)
        else:
            yield release("dead", 1)

    def sleeper() -> Thread:
        yield store("gate", 1)
        yield fence()
        first = yield load("item")
        dead = yield (load if weak == "pidfd sees the end" else acquire)("dead")
        if weak == "look before the pidfd":
            found = first
        else:
            found = yield load("item")
        if not found:
            # A living process is watched; of a dead one nothing comes any more.
            yield store("asleep", 2 if dead else 1)

    def final(memory: dict[str, int]) -> None:
        assert memory["asleep"] != 2, "asleep with an item, and no process is left to ring"

    names = ("item", "gate", "dead", "asleep")
    return explore([changer, sleeper], dict.fromkeys(names, 0), final)


def test_a_change_whose_changer_dies_ends_a_long_sleep() -> None:
    assert changer_that_dies("") > 5


@pytest.mark.parametrize(
    "weak", ["look before the pidfd", "end orders stores", "pidfd sees the end"]
)
def test_each_step_before_a_long_sleep_is_needed(weak: str) -> None:
    assert violated(lambda: changer_that_dies(weak))


# -- SYNC gate, with a changer that lives: a long sleep is rung --


def changer_that_lives(weak: str) -> int:
    def changer() -> Thread:
        yield store("item", 1)
        if weak != "changer's fence":
            yield fence()
        armed = yield acquire("gate")
        if armed:
            address = yield load("address")
            if address:
                yield store("rung", 1)

    def sleeper() -> Thread:
        yield store("address", 1)
        won = yield swap("gate", 0, 1)
        assert won
        if weak != "sleeper's fence":
            yield fence()
        found = yield load("item")
        if not found:
            yield store("asleep", 1)

    def final(memory: dict[str, int]) -> None:
        assert not memory["asleep"] or memory["rung"], "asleep with an item, and not rung"

    names = ("item", "gate", "address", "rung", "asleep")
    return explore([changer, sleeper], dict.fromkeys(names, 0), final)


def test_a_change_rings_a_long_sleep() -> None:
    assert changer_that_lives("") > 10


@pytest.mark.parametrize("weak", ["changer's fence", "sleeper's fence"])
def test_each_order_of_a_ring_is_needed(weak: str) -> None:
    assert violated(lambda: changer_that_lives(weak))


# -- SYNC join: a member that comes is watched, or rings --


def joining(weak: str) -> int:
    def member() -> Thread:
        yield store("member", 1)
        if weak != "member's fence":
            yield fence()
        address = yield load("address")
        if address:
            yield store("rung", 1)

    def sleeper() -> Thread:
        yield store("address", 1)
        if weak != "sleeper's fence":
            yield fence()
        there = yield load("member")
        if there:
            yield store("watched", 1)

    def final(memory: dict[str, int]) -> None:
        assert memory["watched"] or memory["rung"], "its death would be seen by no process"

    names = ("member", "address", "rung", "watched")
    return explore([member, sleeper], dict.fromkeys(names, 0), final)


def test_a_member_that_joins_is_watched() -> None:
    assert joining("") > 5


@pytest.mark.parametrize("weak", ["member's fence", "sleeper's fence"])
def test_each_order_of_joining_is_needed(weak: str) -> None:
    assert violated(lambda: joining(weak))


# -- SYNC done: of two that report the last two items, one wakes those in join --


def last_two(weak: str) -> int:
    def worker(mine: str, theirs: str) -> Thread:
        yield store(mine, 1)
        if weak != "fence":
            yield fence()
        other = yield load(theirs)
        if other:
            yield store("opened", 1)

    def final(memory: dict[str, int]) -> None:
        assert memory["opened"], "all is done, and those in join sleep"

    memory = dict.fromkeys(("done0", "done1", "opened"), 0)
    return explore(
        [lambda: worker("done0", "done1"), lambda: worker("done1", "done0")], memory, final
    )


def test_the_last_of_two_reports_is_seen() -> None:
    assert last_two("") > 5
    assert violated(lambda: last_two("fence"))


# -- a reaper that has the lock of a dead member hides its death from a sleeper --


def reaping(weak: str) -> int:
    def reaper() -> Thread:
        won = yield swap("lock", 0, 1)
        if not won:
            return
        yield store("forgiven", 1)
        yield release("lock", 2)
        if weak == "reaper wakes":
            return
        if weak != "reaper's fence":
            yield fence()
        armed = yield load("gate")
        if armed:
            yield store("rung", 1)

    def joiner() -> Thread:
        yield store("gate", 1)
        if weak != "joiner's fence":
            yield fence()
        won = yield swap("lock", 0, 3)
        if won:
            yield store("forgiven", 1)
        found = yield load("forgiven")
        if not found:
            yield store("asleep", 1)

    def final(memory: dict[str, int]) -> None:
        assert not memory["asleep"] or memory["rung"], "asleep, and what it waits for has come"

    names = ("lock", "forgiven", "gate", "rung", "asleep")
    return explore([reaper, joiner], dict.fromkeys(names, 0), final)


def test_a_death_that_another_process_takes_over_is_reported() -> None:
    assert reaping("") > 10


@pytest.mark.parametrize("weak", ["reaper wakes", "reaper's fence", "joiner's fence"])
def test_each_step_of_taking_over_is_needed(weak: str) -> None:
    assert violated(lambda: reaping(weak))


# -- two threads of a process share a bell: the one that takes a ring wakes the other --


def shared_bell(weak: str) -> int:
    """Registering, and taking rings and waking, are under a lock: read-modify-writes here."""

    def sleeper() -> Thread:
        if weak != "register before the look":
            yield swap("registered", 0, 1)
        item = yield acquire("item")
        if weak == "register before the look":
            yield swap("registered", 0, 1)
        if not item:
            yield store("asleep", 1)

    def changer() -> Thread:
        yield release("item", 1)
        yield swap("ring", 0, 1)

    def other() -> Thread:
        """Checks at the same time, for something else: takes the rings, wakes the registered."""
        rung = yield clear_bits("ring", 1)
        if rung and weak != "wake the registered":
            registered = yield add("registered", 0)  # under the lock
            if registered:
                yield store("woken", 1)

    def final(memory: dict[str, int]) -> None:
        awake = memory["ring"] or memory["woken"]
        assert not memory["asleep"] or awake, "asleep, and its ring was taken by another thread"

    names = ("registered", "item", "ring", "asleep", "woken")
    return explore([sleeper, changer, other], dict.fromkeys(names, 0), final)


def test_a_ring_that_another_thread_takes_wakes_this_one() -> None:
    assert shared_bell("") > 20


@pytest.mark.parametrize("weak", ["register before the look", "wake the registered"])
def test_each_step_of_a_shared_bell_is_needed(weak: str) -> None:
    assert violated(lambda: shared_bell(weak))
