# SPDX-License-Identifier: Apache-2.0
"""Access to another process's memory: only as granted, and not after the grant was revoked.

`memory` is written by the initiator or sender (1), and by its owner's program after the access has
ended (5). The last value in its modification order decides.
"""

import pytest

from model.explorer import (
    Thread,
    acquire,
    explore,
    fence,
    load,
    loads_before,
    release,
    store,
    stores_before,
)
from model.verdict import violated


def untouched(memory: dict[str, int]) -> None:
    assert not memory["over"] or memory["memory"] == 5, "a byte was copied after the end"


# -- SYNC hazard, SYNC hazard-clear: no byte is copied after Invalidate completed --


def hazard(
    initiator_fence: bool = True,
    owner_fence: bool = True,
    leave: bool = True,
    acquires: bool = True,
) -> int:
    def initiator() -> Thread:
        yield release("hazard", 7)
        if initiator_fence:
            yield fence()
        token = yield load("token")
        if token == 7:
            yield store("memory", 1)
        yield (release if leave else store)("hazard", 0)

    def owner() -> Thread:
        yield store("token", 0)
        if owner_fence:
            yield fence()
        busy = yield (acquire if acquires else load)("hazard")
        if busy != 7:
            yield store("over", 1)
            yield store("memory", 5)

    words = {"hazard": 0, "token": 7, "over": 0, "memory": 0}
    return explore([initiator, owner], words, untouched)


def test_nothing_moves_after_invalidate() -> None:
    assert hazard() > 10


@pytest.mark.parametrize("part", ["initiator_fence", "owner_fence", "leave", "acquires"])
def test_hazards_need_their_order(part: str) -> None:
    assert violated(lambda: hazard(**{part: False}))


def next_hazard(show: bool = True) -> int:
    """After the copy under token 7 another begins under 9; the owner may see only the latter."""

    def initiator() -> Thread:
        yield release("hazard", 7)
        yield fence()
        token = yield load("token")
        if token == 7:
            yield store("memory", 1)
        yield release("hazard", 0)
        yield (release if show else store)("hazard", 9)

    def owner() -> Thread:
        yield store("token", 0)
        yield fence()
        busy = yield acquire("hazard")
        if busy != 7:
            yield store("over", 1)
            yield store("memory", 5)

    words = {"hazard": 0, "token": 7, "over": 0, "memory": 0}
    return explore([initiator, owner], words, untouched)


def test_the_next_hazard_shows_that_the_last_is_over() -> None:
    assert next_hazard() > 10
    assert violated(lambda: next_hazard(show=False))


# -- SYNC watched: a thread that loads the last byte of a Write loads all of it --


def watched(last: bool = True, acquires: bool = True) -> int:
    def initiator() -> Thread:
        yield store("first", 1)
        yield (release if last else store)("last", 1)

    def watcher() -> Thread:
        seen = yield (acquire if acquires else load)("last")
        if seen:
            first = yield load("first")
            assert first == 1, "the last byte came first"

    return explore([initiator, watcher], {"first": 0, "last": 0})


def test_the_last_byte_comes_last() -> None:
    assert watched() > 1
    assert violated(lambda: watched(last=False))
    assert violated(lambda: watched(acquires=False))


# -- SYNC grant: the words read of a grant belong to one version --


def grant(publish: bool = True, acquires: bool = True, revoke: bool = True) -> int:
    """Token 7 is revoked; the same entry is published again under token 9."""

    def owner() -> Thread:
        if revoke:
            yield store("token", 0)
            yield fence()
        yield store("base", 2)
        yield store("rights", 2)
        yield (release if publish else store)("token", 9)

    def initiator() -> Thread:
        token = yield (acquire if acquires else load)("token")
        if token == 0:
            return
        base = yield load("base")
        rights = yield load("rights")
        yield store("hazard", token)
        yield fence()
        again = yield load("token")
        if again == token:
            version = 1 if token == 7 else 2
            assert (base, rights) == (version, version), "two versions mixed"

    return explore([owner, initiator], {"token": 7, "base": 1, "rights": 1, "hazard": 0})


def test_a_grant_is_read_whole() -> None:
    assert grant() > 10


@pytest.mark.parametrize("part", ["publish", "acquires", "revoke"])
def test_grants_need_their_order(part: str) -> None:
    assert violated(lambda: grant(**{part: False}))


# -- SYNC placing: no receive is written after a Flush returned it --


def placing(
    sender_fence: bool = True, flusher_fence: bool = True, leave: bool = True, acquires: bool = True
) -> int:
    def sender() -> Thread:
        yield store("hazard", 1)
        if sender_fence:
            yield fence()
        revision = yield load("revision")
        if revision == 0:
            yield store("memory", 1)
        yield (release if leave else store)("hazard", 0)

    def flusher() -> Thread:
        yield store("revision", 1)
        if flusher_fence:
            yield fence()
        busy = yield (acquire if acquires else load)("hazard")
        if not busy:
            yield store("over", 1)
            yield store("memory", 5)

    words = dict.fromkeys(("hazard", "revision", "over", "memory"), 0)
    return explore([sender, flusher], words, untouched)


def test_a_flush_and_a_push_never_share_a_receive() -> None:
    assert placing() > 10


@pytest.mark.parametrize("part", ["sender_fence", "flusher_fence", "leave", "acquires"])
def test_placing_needs_its_order(part: str) -> None:
    assert violated(lambda: placing(**{part: False}))


# -- SYNC flush: the count of cancelled receives is read with the revision it belongs to --


def flush(
    count: bool = True, offer: bool = True, acquires: bool = True, look_at_count: bool = True
) -> int:
    """A Flush from revision 2 on; several threads of the owner may execute its steps."""

    def owner() -> Thread:
        yield store("revision", 3)
        yield (release if count else store)("cancelled", 1)
        yield (release if offer else store)("revision", 4)

    def sender() -> Thread:
        revision = yield (acquire if acquires else load)("revision")
        cancelled = yield (acquire if look_at_count else load)("cancelled")
        again = yield load("revision")
        if revision % 2 == 0 and again == revision:
            assert cancelled == (revision == 4), "a count of another revision"

    return explore([owner, sender], {"revision": 2, "cancelled": 0})


def test_a_flush_is_seen_whole() -> None:
    assert flush() > 5


@pytest.mark.parametrize("part", ["count", "offer", "acquires", "look_at_count"])
def test_a_flush_needs_its_order(part: str) -> None:
    assert violated(lambda: flush(**{part: False}))


# -- SYNC entry: an advertised receive is read consistently, although its entry is reused --


def entry(number_first: bool = True, number_last: bool = True) -> int:
    def owner() -> Thread:
        yield store("number", 2)
        if number_first:
            yield stores_before()
        yield store("offset", 2)
        yield store("length", 2)

    def sender() -> Thread:
        number = yield acquire("number")
        if number != 1:
            return
        offset = yield load("offset")
        length = yield load("length")
        if number_last:
            yield loads_before()
        again = yield acquire("number")
        if again == 1:
            assert (offset, length) == (1, 1), "two receives mixed"

    return explore([owner, sender], dict.fromkeys(("number", "offset", "length"), 1))


def test_a_published_receive_is_read_whole() -> None:
    assert entry() > 10
    assert violated(lambda: entry(number_first=False))
    assert violated(lambda: entry(number_last=False))


# -- SYNC posted: a sender that loads the count loads the receives that it counts --


def posted(publish: bool = True, acquires: bool = True) -> int:
    def owner() -> Thread:
        yield store("number", 1)
        yield store("offset", 1)
        yield (release if publish else store)("posted", 1)

    def sender() -> Thread:
        count = yield (acquire if acquires else load)("posted")
        if count:
            number = yield acquire("number")
            offset = yield load("offset")
            assert (number, offset) == (1, 1), "counted before it was written"

    return explore([owner, sender], dict.fromkeys(("number", "offset", "posted"), 0))


def test_a_receive_that_counts_is_there() -> None:
    assert posted() > 5
    assert violated(lambda: posted(publish=False))
    assert violated(lambda: posted(acquires=False))


# -- SYNC counters: the words read of a set of counters belong to one use --


def counters(given: bool = True, taken: bool = True, close: bool = True, still: bool = True) -> int:
    """Use 7 ends; the same set is reused for use 9."""

    def owner() -> Thread:
        yield store("name", 0)
        if close:
            yield stores_before()
        yield store("sent", 2)
        yield store("bytes", 2)
        yield (release if given else store)("name", 9)

    def onlooker() -> Thread:
        name = yield (acquire if taken else load)("name")
        if name == 0:
            return
        sent = yield load("sent")
        counted = yield load("bytes")
        if still:
            yield loads_before()
        again = yield load("name")
        if again == name:
            use = 1 if name == 7 else 2
            assert (sent, counted) == (use, use), "two uses mixed"

    return explore([owner, onlooker], {"name": 7, "sent": 1, "bytes": 1})


def test_a_counters_is_read_of_one_use() -> None:
    assert counters() > 10


@pytest.mark.parametrize("part", ["given", "taken", "close", "still"])
def test_counter_tables_need_their_order(part: str) -> None:
    assert violated(lambda: counters(**{part: False}))
