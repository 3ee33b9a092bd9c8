# SPDX-License-Identifier: Apache-2.0
"""Lanes, shares, placed units, bells, deaths, ends, notes of ranks: each order removed in turn."""

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
    swap,
)
from model.verdict import violated

# -- SYNC shown, SYNC room: a ring of two lines in its second lap; old marks are never records --


def lane(clear: bool = True, show: bool = True, acquires: bool = True, room: bool = True) -> int:
    """Three records through two lines. Line 1 has a mark of an earlier lap that must be cleared."""

    def sender() -> Thread:
        read = 0
        for position in range(3):
            line = position % 2
            if room and position + 2 - read > 2 + 1:
                read = yield acquire("read_pos")
                if position + 1 - read > 1:
                    return  # no room: it tries again later
            yield store(f"words{line}", 10 + position)
            if clear:
                yield store(f"mark{1 - line}", 0)
            yield (release if show else store)(f"mark{line}", 1 + position)

    def receiver() -> Thread:
        for position in range(2):
            line = position % 2
            mark = yield (acquire if acquires else load)(f"mark{line}")
            if mark == 0:
                return
            assert mark == 1 + position, "a mark of an earlier lap was taken for a record"
            words = yield load(f"words{line}")
            assert words == 10 + position, "a record was read before it was written"
            yield release("read_pos", position + 1)

    before = {"mark0": 0, "mark1": 99, "words0": 0, "words1": 0, "read_pos": 0}
    return explore([sender, receiver], before)


def test_records_are_whole_and_none_is_of_an_earlier_lap() -> None:
    assert lane() > 20


@pytest.mark.parametrize("part", ["clear", "show", "acquires", "room"])
def test_a_lane_needs_its_order(part: str) -> None:
    assert violated(lambda: lane(**{part: False}))


# -- SYNC wants: a sender that found no room is woken, or sees the room --


def wants(sender_fence: bool = True, receiver_fence: bool = True, again: bool = True) -> int:
    def sender() -> Thread:
        yield store("wants_room", 1)
        if sender_fence:
            yield fence()
        read = yield acquire("read_pos")
        yield store("continues", read if again else 0)

    def receiver() -> Thread:
        yield release("read_pos", 1)
        if receiver_fence:
            yield fence()
        wanted = yield load("wants_room")
        yield store("woken", wanted)

    def final(memory: dict[str, int]) -> None:
        assert memory["continues"] or memory["woken"], "the sender sleeps with room before it"

    words = ("wants_room", "read_pos", "continues", "woken")
    return explore([sender, receiver], dict.fromkeys(words, 0), final)


@pytest.mark.parametrize("part", ["sender_fence", "receiver_fence", "again"])
def test_a_sender_learns_of_room(part: str) -> None:
    assert wants() > 3
    assert violated(lambda: wants(**{part: False}))


# -- SYNC bell: no rank sleeps with a record before it --


def bell(
    sleeper_fence: bool = True,
    producer_fence: bool = True,
    again: bool = True,
    early_bell: bool = True,
) -> int:
    def sleeper() -> Thread:
        rung = (yield load("bell")) if early_bell else 0
        yield store("asleep", 1)
        if sleeper_fence:
            yield fence()
        mark = (yield acquire("mark")) if again else 0
        if not early_bell:
            rung = yield load("bell")
        yield store("sleeps_at", 0 if mark else 1 + rung)

    def producer() -> Thread:
        yield release("mark", 1)
        if producer_fence:
            yield fence()
        if (yield load("asleep")):
            yield store("asleep", 0)
            yield release("bell", 1)

    def final(memory: dict[str, int]) -> None:
        # A sleep ends at once, or by the wake-up, if the bell is not what the sleeper saw.
        assert memory["sleeps_at"] != 1 + memory["bell"], "a rank sleeps with a record before it"

    words = ("bell", "asleep", "mark", "sleeps_at")
    return explore([sleeper, producer], dict.fromkeys(words, 0), final)


@pytest.mark.parametrize("part", ["sleeper_fence", "producer_fence", "again", "early_bell"])
def test_a_sleeper_is_woken_or_sees_the_record(part: str) -> None:
    assert bell() > 5
    assert violated(lambda: bell(**{part: False}))


# -- SYNC death: a counted death is a visible one, after all records of the dead rank --


def death(count: bool = True, acquires: bool = True, last: bool = True) -> int:
    def launcher() -> Thread:
        # The kernel reported the end of the process, so its stores are before this.
        yield store("mark", 1)
        if not last:
            yield (release if count else store)("failures", 1)
        yield store("dead", 1)
        if last:
            yield (release if count else store)("failures", 1)

    def rank() -> Thread:
        if (yield (acquire if acquires else load)("failures")):
            assert (yield load("mark")) == 1, "a record of the dead rank is lost"
            assert (yield load("dead")) == 1, "a counted death is not seen, ever"

    return explore([launcher, rank], dict.fromkeys(("failures", "dead", "mark"), 0))


@pytest.mark.parametrize("part", ["count", "acquires", "last"])
def test_a_death_is_seen_with_all_that_the_rank_had_shown(part: str) -> None:
    assert death() > 3
    assert violated(lambda: death(**{part: False}))


# -- SYNC left: a rank that stays gets what another one sent before it left --


def left(last: bool = True, shows: bool = True, acquires: bool = True, drains: bool = True) -> int:
    def leaver() -> Thread:
        if not last:
            yield store("left", 1)
        yield release("mark", 1)
        if last:
            yield (release if shows else store)("left", 1)

    def stays() -> Thread:
        before = yield acquire("mark")
        gone = yield (acquire if acquires else load)("left")
        after = (yield acquire("mark")) if drains else before
        assert not gone or after, "a rank ends although a message for it is there"

    return explore([leaver, stays], dict.fromkeys(("left", "mark"), 0))


@pytest.mark.parametrize("part", ["last", "shows", "acquires", "drains"])
def test_a_rank_that_stays_gets_every_message(part: str) -> None:
    assert left() > 3
    assert violated(lambda: left(**{part: False}))


# -- SYNC place: a process that takes a place sees what the one before it has read --


def place(last: bool = True, shows: bool = True, acquires: bool = True) -> int:
    def gives() -> Thread:
        if not last:
            yield store("left", 2)
        yield store("read_pos", 1)
        if last:
            yield (release if shows else store)("left", 2)

    def takes() -> Thread:
        given_up = (yield (acquire if acquires else load)("left")) == 2
        used = yield load("read_pos")
        assert not given_up or used, "a process begins anew at a lane in use"

    return explore([gives, takes], dict.fromkeys(("left", "read_pos"), 0))


@pytest.mark.parametrize("part", ["last", "shows", "acquires"])
def test_a_place_in_use_is_seen_to_be(part: str) -> None:
    assert place() >= 3
    assert violated(lambda: place(**{part: False}))


# -- SYNC note: all words that a reader takes are of one note --


def note(odd: bool = True, fenced: bool = True, ends: bool = True, reader: bool = True) -> int:
    def writer() -> Thread:
        if odd:
            yield store("notes", 1)
        if fenced:
            yield stores_before()
        yield store("peer", 7)
        yield store("tag", 7)
        yield (release if ends else store)("notes", 2)

    def tool() -> Thread:
        turn = yield acquire("notes")
        peer = yield load("peer")
        tag = yield load("tag")
        if reader:
            yield loads_before()
        if turn % 2 == 0 and (yield load("notes")) == turn:
            assert peer == tag, "half of a note"
            assert (peer == 7) == (turn == 2), "the words of another turn"

    return explore([writer, tool], dict.fromkeys(("notes", "peer", "tag"), 0))


@pytest.mark.parametrize("part", ["odd", "fenced", "ends", "reader"])
def test_a_note_is_read_whole(part: str) -> None:
    assert note() > 10
    assert violated(lambda: note(**{part: False}))


# -- SYNC share: no unit of a message is moved twice, and the send ends after the last read --


def share_sender(shown: bool, swaps: bool, waits: bool) -> Thread:
    """Take units from the front. The word is front + 10 * back, of two units."""
    if not (yield (acquire if shown else load)("clear")):
        return
    front = 0
    while True:
        seen = yield load("share")
        back = seen // 10
        if seen % 10 != front or front == back:
            break
        won = (yield swap("share", seen, seen + 1)) if swaps else 1
        if not swaps:
            yield store("share", seen + 1)
        if won:
            yield store(f"piece{front}", 1)
            front += 1
    if back == 2 or not waits:
        assert not waits or front == 2, "the send ended before all was moved"
        yield store("source", 2)  # the send has ended: the program has its buffer back


def share_receiver(begun: bool) -> Thread:
    """Begin a message, and take units from the back."""
    if begun:
        yield store("share", 20)
    yield release("clear", 1)
    if not begun:
        yield store("share", 20)
    while True:
        seen = yield load("share")
        front, back = seen % 10, seen // 10
        if front >= back:
            return
        if (yield swap("share", seen, seen - 10)):
            assert (yield load("source")) == 1, "memory was read after its send had ended"
            yield store(f"read{back - 1}", 1)


def share(begun: bool = True, shown: bool = True, swaps: bool = True, waits: bool = True) -> int:
    """Two units; the word is 22 from the message before."""

    def final(memory: dict[str, int]) -> None:
        for unit in range(2):
            assert memory[f"piece{unit}"] + memory[f"read{unit}"] < 2, "moved by both"

    words = ("clear", "piece0", "piece1", "read0", "read1")
    sides = [lambda: share_sender(shown, swaps, waits), lambda: share_receiver(begun)]
    return explore(sides, {**dict.fromkeys(words, 0), "share": 22, "source": 1}, final)


@pytest.mark.parametrize("part", ["begun", "shown", "swaps", "waits"])
def test_both_sides_move_a_message_and_no_unit_twice(part: str) -> None:
    assert share() > 10
    assert violated(lambda: share(**{part: False}))


# -- SYNC placed: a buffer that its receiver has given back is not written by the sender --


NO_MORE = 9  # `placed` of a sender that writes nothing more


def placing_sender(shows: bool, refused: bool, lets_go: bool) -> Thread:
    """Write units into the buffer, from the front. The word is front + 10 * back, of two units.

    `refused`: the kernel does not let it write the second unit.
    """
    if not (yield acquire("clear")):
        return
    for front in range(2):
        seen = yield load("share")
        if seen % 10 != front or front >= seen // 10 or not (yield swap("share", seen, seen + 1)):
            return
        if refused and front == 1:
            if lets_go:
                yield (release if shows else store)("placed", NO_MORE)
            return
        yield store(f"unit{front}", 1)
        yield (release if shows else store)("placed", front + 1)


def placing_receiver(cleared: bool, closes: bool, acquires: bool, waits: bool) -> Thread:
    """Begin a message, end it by an error, and use the buffer for something else."""
    yield store("share", 20)
    if cleared:
        yield store("placed", 0)
    yield release("clear", 1)
    while True:
        seen = yield load("share")
        if not closes or (yield swap("share", seen, seen % 10)):
            break
    if waits and (yield (acquire if acquires else load)("placed")) < seen % 10:
        return  # it polls again later
    for unit in range(2):
        yield store(f"unit{unit}", 9)
    yield store("returned", 1)


def placing(
    cleared: bool = True,
    closes: bool = True,
    shows: bool = True,
    acquires: bool = True,
    waits: bool = True,
    refused: bool = False,
    lets_go: bool = True,
) -> int:
    """`placed` is 2 from the message before."""

    def final(memory: dict[str, int]) -> None:
        for unit in range(2):
            assert not memory["returned"] or memory[f"unit{unit}"] == 9, "written after its return"
        assert memory["placed"] >= memory["share"] % 10, "its receiver waits for ever"

    words = ("clear", "unit0", "unit1", "returned")
    sides = [
        lambda: placing_sender(shows, refused, lets_go),
        lambda: placing_receiver(cleared, closes, acquires, waits),
    ]
    return explore(sides, {**dict.fromkeys(words, 0), "share": 22, "placed": 2}, final)


@pytest.mark.parametrize("part", ["cleared", "closes", "shows", "acquires", "waits"])
def test_a_buffer_that_was_given_back_is_not_written(part: str) -> None:
    assert placing() > 10
    assert violated(lambda: placing(**{part: False}))


@pytest.mark.parametrize("part", ["shows", "lets_go"])
def test_a_sender_that_may_not_write_lets_its_receiver_go(part: str) -> None:
    assert placing(refused=True) > 10
    assert violated(lambda: placing(refused=True, **{part: False}))
