# SPDX-License-Identifier: Apache-2.0
"""Topics through all interleavings: borrow and reuse, arming and sleeping, joining and leaving.

Each order of the headers is taken away in turn, and some execution then goes wrong.
"""

import pytest

from model.explorer import (
    Thread,
    acquire,
    add,
    explore,
    fence,
    load,
    loads_before,
    release,
    store,
    stores_before,
)
from model.verdict import violated

WITHDRAWN = 8
HELD = 1

# -- SYNC line: a line that is written again, read whole or not at all --


def line(weak: str) -> int:
    def publisher() -> Thread:
        yield store("stamp", WITHDRAWN)
        if weak != "stores before":
            yield stores_before()
        yield store("body", 2)
        if weak == "stamp release":
            yield store("stamp", 2)
        else:
            yield release("stamp", 2)

    def subscriber() -> Thread:
        stamp = yield (load if weak == "stamp acquire" else acquire)("stamp")
        body = yield load("body")
        if weak != "loads before":
            yield loads_before()
        again = yield load("stamp")
        if stamp < WITHDRAWN and again == stamp:
            assert body == stamp, "the body of another sample"

    return explore([publisher, subscriber], {"stamp": 1, "body": 1})


def test_a_line_is_read_whole() -> None:
    assert line("") > 10


@pytest.mark.parametrize(
    "weak", ["stores before", "stamp release", "stamp acquire", "loads before"]
)
def test_each_order_of_a_line_is_needed(weak: str) -> None:
    assert violated(lambda: line(weak))


# -- SYNC borrow, SYNC give-back: a slot that is held is not used again --


def borrow(weak: str) -> int:
    def publisher() -> Thread:
        yield store("stamp", WITHDRAWN)
        if weak != "fence of the publisher":
            yield fence()
        held = yield acquire("held")
        if not held:
            yield store("bytes", 2)  # another sample

    def subscriber() -> Thread:
        stamp = yield acquire("stamp")
        if stamp != 1:
            return
        yield store("held", HELD)
        if weak != "fence of the subscriber":
            yield fence()
        if weak != "second look":
            stamp = yield load("stamp")
        if stamp == 1:
            found = yield load("bytes")
            assert found == 1, "the slot was used again"
            found = yield load("bytes")
            assert found == 1, "the slot was used again while it was held"
        yield release("held", 0)

    return explore([publisher, subscriber], {"stamp": 1, "held": 0, "bytes": 1})


def give_back(weak: str) -> int:
    """After its last access the subscriber gives the slot back; the publisher sees that access."""

    def subscriber() -> Thread:
        yield store("bytes", 5)  # stands for the last access: no later store may pass it
        if weak == "give-back release":
            yield store("held", 0)
        else:
            yield release("held", 0)

    def publisher() -> Thread:
        yield store("stamp", WITHDRAWN)
        yield fence()
        held = yield (load if weak == "give-back acquire" else acquire)("held")
        if not held:
            found = yield load("bytes")
            assert found == 5, "used before the last access"

    return explore([publisher, subscriber], {"stamp": 1, "held": HELD, "bytes": 1})


def test_a_held_slot_is_not_used_again() -> None:
    assert borrow("") > 20
    assert give_back("") > 5


@pytest.mark.parametrize(
    "weak", ["fence of the publisher", "fence of the subscriber", "second look"]
)
def test_each_order_of_borrowing_is_needed(weak: str) -> None:
    assert violated(lambda: borrow(weak))


@pytest.mark.parametrize("weak", ["give-back release", "give-back acquire"])
def test_each_order_of_giving_back_is_needed(weak: str) -> None:
    assert violated(lambda: give_back(weak))


# -- SYNC cursor: a slot that is kept no more because of a cursor counts as held --


def cursor(weak: str) -> int:
    def subscriber() -> Thread:
        if weak == "cursor before held":
            yield store("cursor", 1)
            yield store("held", HELD)
        else:
            yield store("held", HELD)
            yield (store if weak == "cursor release" else release)("cursor", 1)
        found = yield load("bytes")
        assert found == 1, "the slot was used again"

    def publisher() -> Thread:
        if weak == "held before cursor":
            held = yield acquire("held")
        passed = yield (load if weak == "cursor acquire" else acquire)("cursor")
        if weak != "held before cursor":
            held = yield acquire("held")
        if passed and not held:
            yield store("bytes", 2)

    return explore([subscriber, publisher], {"cursor": 0, "held": 0, "bytes": 1})


def test_a_slot_behind_the_cursor_counts_as_held() -> None:
    assert cursor("") > 5


@pytest.mark.parametrize(
    "weak", ["cursor before held", "cursor release", "cursor acquire", "held before cursor"]
)
def test_each_order_of_a_cursor_is_needed(weak: str) -> None:
    assert violated(lambda: cursor(weak))


# -- SYNC doze: no subscriber sleeps while there is a sample --


def doze(weak: str) -> int:
    def subscriber() -> Thread:
        yield store("armed", 1)
        if weak != "fence of the subscriber":
            yield fence()
        stamp = yield acquire("stamp")
        if not stamp:
            yield store("asleep", 1)

    def publisher() -> Thread:
        yield release("stamp", 1)
        if weak != "fence of the publisher":
            yield fence()
        if weak == "the bitmap alone":
            bit = yield load("bitmap")  # which another subscriber has cleared
            if not bit:
                return
        armed = yield load("armed")
        if armed:
            yield store("rung", 1)

    def final(memory: dict[str, int]) -> None:
        assert memory["rung"] or not memory["asleep"], "asleep while there is a sample"

    memory = dict.fromkeys(("armed", "stamp", "asleep", "rung", "bitmap"), 0)
    return explore([subscriber, publisher], memory, final)


def test_no_subscriber_sleeps_while_there_is_a_sample() -> None:
    assert doze("") > 5


@pytest.mark.parametrize(
    "weak", ["fence of the subscriber", "fence of the publisher", "the bitmap alone"]
)
def test_each_order_of_dozing_is_needed(weak: str) -> None:
    assert violated(lambda: doze(weak))


# -- SYNC counter: the kernel compares the counter as it puts a subscriber to sleep --


def sleeper_at_counter(weak: str) -> Thread:
    """A subscriber. The kernel compares, and puts it to sleep, under a lock ("lock")."""
    if weak != "counter before the poll":
        seen = yield acquire("written")
    yield store("armed", 1)
    if weak != "fence of the subscriber":
        yield fence()
    stamp = yield acquire("stamp")
    if weak == "counter before the poll":
        seen = yield acquire("written")
    if not stamp:
        yield add("lock", 1)
        written = yield load("written")
        if weak == "the comparison" or written == seen:
            yield store("asleep", 1)


def waker_at_counter(weak: str) -> Thread:
    """A publisher. Its wake-up takes that lock first, and finds no sleeper, or wakes it."""
    words = ["stamp", "written"]
    for word in reversed(words) if weak == "stamp before the counter" else words:
        yield release(word, 1)
    if weak != "fence of the publisher":
        yield fence()
    armed = yield load("armed")
    if armed:
        came_first = yield add("lock", 1)
        if came_first:
            yield store("woken", 1)


def counter(weak: str) -> int:
    def final(memory: dict[str, int]) -> None:
        assert memory["woken"] or not memory["asleep"], "asleep while there is a sample"

    memory = dict.fromkeys(("armed", "stamp", "written", "lock", "asleep", "woken"), 0)
    threads = [lambda: sleeper_at_counter(weak), lambda: waker_at_counter(weak)]
    return explore(threads, memory, final)


def test_no_subscriber_sleeps_at_the_counter_while_there_is_a_sample() -> None:
    assert counter("") > 5


@pytest.mark.parametrize(
    "weak",
    [
        "counter before the poll",
        "fence of the subscriber",
        "fence of the publisher",
        "the comparison",
        "stamp before the counter",
    ],
)
def test_each_order_of_sleeping_at_the_counter_is_needed(weak: str) -> None:
    assert violated(lambda: counter(weak))


# -- SYNC blocked: no publisher sleeps while there is room --


def blocked(weak: str) -> int:
    def publisher() -> Thread:
        yield store("blocked", 1)
        if weak != "fence of the publisher":
            yield fence()
        passed = yield acquire("cursor")
        if not passed:
            yield store("asleep", 1)

    def subscriber() -> Thread:
        yield release("cursor", 1)
        if weak != "fence of the subscriber":
            yield fence()
        waits = yield load("blocked")
        if waits:
            yield store("rung", 1)

    def final(memory: dict[str, int]) -> None:
        assert memory["rung"] or not memory["asleep"], "asleep while there is room"

    memory = dict.fromkeys(("blocked", "cursor", "asleep", "rung"), 0)
    return explore([publisher, subscriber], memory, final)


def test_no_publisher_sleeps_while_there_is_room() -> None:
    assert blocked("") > 5


@pytest.mark.parametrize("weak", ["fence of the subscriber", "fence of the publisher"])
def test_each_order_of_blocking_is_needed(weak: str) -> None:
    assert violated(lambda: blocked(weak))


# -- SYNC seat, SYNC admitted: one that finds its seat finds all of it --


def join(weak: str) -> int:
    def publisher() -> Thread:
        yield store("start", 7)
        yield (store if weak == "seat release" else release)("ident", 3)
        yield (store if weak == "admitted release" else release)("admitted", 1)

    def subscriber() -> Thread:
        admitted = yield (load if weak == "admitted acquire" else acquire)("admitted")
        if not admitted:
            return
        ident = yield (load if weak == "seat acquire" else acquire)("ident")
        if weak.startswith("admitted"):
            assert ident == 3, "it looks only when the count has grown, and misses its seat"
        if ident == 3 and weak.startswith("seat"):
            # another one's admission may have led it here: the seat carries itself
            start = yield load("start")
            assert start == 7, "the seat of another one"

    def others() -> Thread:
        yield store("admitted", 1)

    threads = [publisher, subscriber]
    if weak.startswith("seat"):
        threads.append(others)
    return explore(threads, {"start": 0, "ident": 0, "admitted": 0})


def test_a_subscriber_finds_its_seat() -> None:
    assert join("admitted") > 5
    assert join("seat") > 5


@pytest.mark.parametrize(
    "weak", ["admitted release", "admitted acquire", "seat release", "seat acquire"]
)
def test_each_order_of_joining_is_needed(weak: str) -> None:
    assert violated(lambda: join(weak))


# -- SYNC moved: one that finds a line withdrawn finds the lines that replace it --


def moved(weak: str) -> int:
    def publisher() -> Thread:
        yield store("new", 1)
        if weak == "withdrawn first":
            yield release("old", WITHDRAWN)
        yield (store if weak == "where release" else release)("where", 1)
        if weak != "withdrawn first":
            yield (store if weak == "withdrawal release" else release)("old", WITHDRAWN)

    def subscriber() -> Thread:
        stamp = yield (load if weak == "stamp acquire" else acquire)("old")
        if stamp == 1:
            return
        where = yield (load if weak == "where acquire" else acquire)("where")
        assert where, "the sample counts as lost"
        stamp = yield load("new")
        assert stamp == 1, "the new lines are not written"

    def polls() -> Thread:
        where = yield (load if weak == "where acquire" else acquire)("where")
        if where:
            stamp = yield load("new")
            assert stamp == 1, "the new lines are not written"

    return explore([publisher, subscriber, polls], {"old": 1, "new": 0, "where": 0})


def test_no_sample_is_missing_while_the_lines_move() -> None:
    assert moved("") > 10


@pytest.mark.parametrize(
    "weak",
    ["withdrawn first", "where release", "withdrawal release", "stamp acquire", "where acquire"],
)
def test_each_order_of_a_move_is_needed(weak: str) -> None:
    assert violated(lambda: moved(weak))


# -- a death: the page of one that died is let go after its end, and what it held is free --


def leave(weak: str) -> int:
    def subscriber() -> Thread:
        yield store("held", HELD)
        yield fence()
        stamp = yield load("stamp")
        if stamp == 1:
            found = yield load("bytes")
            assert found == 1, "the slot was used again"
        yield release("dead", 1)  # by the kernel, after its last access

    def publisher() -> Thread:
        yield store("stamp", WITHDRAWN)
        yield fence()
        dead = 1
        if weak != "without the death":
            dead = yield acquire("dead")
        held = yield acquire("held")
        if dead or not held:
            yield store("bytes", 2)

    return explore([subscriber, publisher], {"stamp": 1, "held": 0, "bytes": 1, "dead": 0})


def test_a_page_is_let_go_after_the_death() -> None:
    assert leave("") > 5
    assert violated(lambda: leave("without the death"))
