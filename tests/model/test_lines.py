# SPDX-License-Identifier: Apache-2.0
"""Small collectives by lines (`collectives/lines.h`), each order removed in turn."""

import pytest

from model.explorer import Thread, acquire, explore, fence, load, release, store
from model.verdict import violated

# -- SYNC entry, SYNC reuse: an entry is whole, and stays until all have read it --


def one_way(show: bool = True, acquires: bool = True, waits: bool = True) -> int:
    """A root that writes two entries through a ring of one."""

    def root() -> Thread:
        yield store("data", 1)
        yield (release if show else store)("mark", 1)
        if waits and (yield acquire("finished")) < 1:
            return  # no room: it tries again later
        yield store("data", 2)
        yield (release if show else store)("mark", 2)

    def member() -> Thread:
        for k in (1, 2):
            if (yield (acquire if acquires else load)("mark")) < k:
                return
            data = yield load("data")
            assert data == k, "another entry was read"
            yield release("finished", k)

    return explore([root, member], dict.fromkeys(("data", "mark", "finished"), 0))


@pytest.mark.parametrize("part", ["show", "acquires", "waits"])
def test_an_entry_is_read_whole_and_not_overwritten_before(part: str) -> None:
    assert one_way() > 10
    assert violated(lambda: one_way(**{part: False}))


def both_ways(show: bool = True, acquires: bool = True, two: bool = True) -> int:
    """Two members that write three entries each, and never read `finished`: the mark of an
    entry says that the one before was read, so that two entries are enough.
    """
    entries = 2 if two else 1

    def member(mine: str, other: str) -> Thread:
        for k in (1, 2, 3):
            at = k % entries
            yield store(f"{mine}data{at}", k)
            yield (release if show else store)(f"{mine}mark{at}", k)
            if (yield (acquire if acquires else load)(f"{other}mark{at}")) < k:
                return
            data = yield load(f"{other}data{at}")
            assert data == k, "another entry was read"

    words = [f"{who}{what}{at}" for who in "ab" for what in ("data", "mark") for at in (0, 1)]
    sides = [lambda: member("a", "b"), lambda: member("b", "a")]
    return explore(sides, dict.fromkeys(words, 0))


@pytest.mark.parametrize("part", ["show", "acquires", "two"])
def test_a_mark_shows_that_the_entry_before_was_read(part: str) -> None:
    assert both_ways() > 10
    assert violated(lambda: both_ways(**{part: False}))


# -- a member that has finished without an entry is in another call --


def elsewhere(ends: bool = True, acquires: bool = True, again: bool = True) -> int:
    def writer() -> Thread:
        yield release("mark", 1)
        yield (release if ends else store)("finished", 1)

    def reader() -> Thread:
        mark = yield acquire("mark")
        finished = yield (acquire if acquires else load)("finished")
        if again:
            mark = yield load("mark")
        if finished:
            assert mark, "a member that gave its entry is taken for one in another call"

    return explore([writer, reader], {"mark": 0, "finished": 0})


@pytest.mark.parametrize("part", ["ends", "acquires", "again"])
def test_a_member_that_gave_its_entry_is_not_elsewhere(part: str) -> None:
    assert elsewhere() > 3
    assert violated(lambda: elsewhere(**{part: False}))


# -- SYNC bell: a waiter is woken by the word that it waits for, and by any record --

ASLEEP, ENTRY = 1, 2


def sleeper(said: bool, fenced: bool, again: bool) -> Thread:
    """Sleep for an entry or a record, and note at which bell."""
    rung = yield load("bell")
    yield store("asleep", ENTRY if said else ASLEEP)
    if fenced:
        yield fence()
    entry = (yield acquire("entry")) if again else 0
    record = yield acquire("record")
    yield store("sleeps_at", 0 if entry or record else 1 + rung)


def producer(word: str, fenced: bool) -> Thread:
    """Show an entry or a record, and wake the sleeper if it waits for that."""
    yield release(word, 1)
    if fenced:
        yield fence()
    asleep = yield load("asleep")
    if asleep == ENTRY or (asleep and word == "record"):
        yield store("asleep", 0)
        yield release("bell", 1)


def bell(
    word: str, said: bool = True, sleeper_fence: bool = True, producer_fence: bool = True,
    again: bool = True,
) -> int:  # fmt: skip
    def final(memory: dict[str, int]) -> None:
        assert memory["sleeps_at"] != 1 + memory["bell"], "a rank sleeps with its word before it"

    words = ("bell", "asleep", "entry", "record", "sleeps_at")
    sides = [lambda: sleeper(said, sleeper_fence, again), lambda: producer(word, producer_fence)]
    return explore(sides, dict.fromkeys(words, 0), final)


@pytest.mark.parametrize("part", ["said", "sleeper_fence", "producer_fence", "again"])
def test_a_sleeper_is_woken_by_its_entry(part: str) -> None:
    assert bell("entry") > 5
    assert violated(lambda: bell("entry", **{part: False}))


@pytest.mark.parametrize("part", ["sleeper_fence", "producer_fence"])
def test_a_sleeper_for_an_entry_is_woken_by_a_record(part: str) -> None:
    assert bell("record") > 5
    assert violated(lambda: bell("record", **{part: False}))
