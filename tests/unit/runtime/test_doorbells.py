# SPDX-License-Identifier: Apache-2.0
"""What processes ring each other by: one each way, taken, dropped, lost and made anew."""

import itertools
import os
import select
import socket
import types
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

import shmnd.common
import shmnd.runtime.doorbells
import shmnd.runtime.waiting
from interrupting import Alarm, inside, interrupted
from shmnd.broker.untaken import close_all
from shmnd.common.descriptors import Descriptor, Doorbell, ring
from shmnd.runtime.doorbells import Doorbells
from shmnd.runtime.waiting import WaitSet
from unit.opened import is_open
from unit.sides import End, Sides

WITHIN = inside(shmnd.runtime, shmnd.common)


@pytest.fixture
def wait_set() -> Iterator[WaitSet]:
    with ExitStack() as stack:
        wait_set = WaitSet()
        stack.callback(wait_set.close)
        yield wait_set


def doorbell(wait_set: WaitSet, process: str = "p") -> tuple[Descriptor, bool]:
    """Return the end to ring at, and whether the watch listens at the other."""
    ringing, listening = socket.socketpair()
    return Descriptor(ringing.detach()), wait_set.listen(Doorbell.of(listening.detach), process)


def doorbells_of(end: End) -> dict[int, Doorbell]:
    """Where others ring this one."""
    found: dict[int, Doorbell] = end.engine._wait_set._doorbells
    return found


def rung_by(end: End, other: End) -> Any:
    """What this one rings the other one by."""
    return end.engine._peers._processes[other.engine.process].doorbell


# -- the watch --


def test_rings_are_taken_all_at_once(wait_set: WaitSet) -> None:
    mine, listens = doorbell(wait_set)
    assert listens
    assert wait_set.ready() == (False, [])
    for _ in range(100):
        ring(mine)
    assert wait_set.ready() == (True, [])
    assert wait_set.ready() == (False, [])


def test_a_ring_at_a_full_doorbell_never_waits(wait_set: WaitSet) -> None:
    mine, _ = doorbell(wait_set)
    poll = select.poll()
    poll.register(mine, select.POLLOUT)
    rings = 0
    while rings < 100_000:
        ring(mine)
        rings += 1
    assert not poll.poll(0)
    assert wait_set.ready() == (True, [])
    assert poll.poll(0)


def test_one_that_rang_last_is_read_first_and_delays_others_for_a_while(wait_set: WaitSet) -> None:
    mine, _ = doorbell(wait_set)

    def turn() -> tuple[bool, list[int]]:
        ring(mine)
        return wait_set.ready(woken=True)

    found, other = os.pipe()
    with os.fdopen(found, "rb", 0) as readable, os.fdopen(other, "wb", 0) as pipe:
        wait_set.include(found)
        assert [turn() for _ in range(3)] == [(True, [])] * 3
        pipe.write(b"x")
        assert turn() == (True, []), "the epoll was asked"
        assert wait_set.ready(woken=True) == (False, [found])
        readable.read(1)
        assert [turn() for _ in range(3)] == [(True, [])] * 3
        pipe.write(b"x")
        turns = [turn() for _ in range(16)]
        assert turns[0] == (True, []), "the epoll was asked"
        assert (True, [found]) in turns
        wait_set.exclude(found)


def test_one_that_rang_last_and_is_dropped_is_closed(wait_set: WaitSet) -> None:
    mine, _ = doorbell(wait_set)
    (listening,) = wait_set._doorbells
    for _ in range(3):
        ring(mine)
        assert wait_set.ready(woken=True) == (True, [])
    mine.close()
    assert wait_set.ready(woken=True) == (True, [])
    assert wait_set.ready(woken=True) == (False, [])
    assert not is_open(listening)


def test_one_that_is_dropped_is_closed(wait_set: WaitSet) -> None:
    mine, _ = doorbell(wait_set)
    (listening,) = wait_set._doorbells
    ring(mine)
    mine.close()
    assert wait_set.ready() == (True, []), "the last ring is heard"
    assert wait_set.ready() == (True, [])
    assert wait_set.ready() == (False, [])
    assert not is_open(listening)


def test_ringing_without_a_listener_causes_no_signal(wait_set: WaitSet) -> None:
    mine, _ = doorbell(wait_set)
    wait_set.close()
    for _ in range(3):
        ring(mine)


def test_a_process_that_keeps_them_all_is_listened_to_at_some(wait_set: WaitSet) -> None:
    most = shmnd.runtime.waiting._DOORBELLS_OF_ONE
    kept = [doorbell(wait_set) for _ in range(most + 3)]
    assert [listens for _, listens in kept] == [True] * most + [False] * 3
    assert doorbell(wait_set, "another")[1]
    ring(kept[0][0])
    for ringing, _ in kept[1:4]:
        ringing.close()
    assert doorbell(wait_set)[1], "those that are over do not count"
    assert wait_set.ready() == (True, []), "a ring that was taken to see that counts"


# -- two processes --


def test_each_is_rung_by_the_other(sides: Sides) -> None:
    sides.to("A4")
    ends = (sides.active, sides.passive)
    for end in ends:
        end.engine.progress()
        assert len(doorbells_of(end)) == 1
    for one, other in (ends, ends[::-1]):
        assert one.engine._wait_set.ready() == (False, [])
        ring(rung_by(other, one))
        assert one.engine._wait_set.ready() == (True, [])


def test_a_repeated_introduction_needs_no_other_doorbell(sides: Sides) -> None:
    sides.to("A4")
    before = rung_by(sides.passive, sides.active)
    sides.active.engine.progress()
    (first,) = doorbells_of(sides.active)
    sides.active.engine.post("doorbell_lost", process=sides.passive.engine.process)
    sides.active.engine.progress()
    assert len(doorbells_of(sides.active)) == 2
    sides.passive.engine.progress()
    sides.active.engine.progress()
    assert list(doorbells_of(sides.active)) == [first]
    assert rung_by(sides.passive, sides.active) is before


def lose_doorbells(sides: Sides, end: End) -> None:
    """As if no descriptor had been free when they came."""
    events = end.engine.client.events

    def lossy() -> Any:
        taken = events()
        for event, fds in taken:
            if event["ev"] == "doorbell":
                event["fds_lost"] = True
                while fds:
                    os.close(fds.pop())
        return taken

    end.engine.client.events = lossy
    sides.to("A4")
    end.engine.progress()
    assert not doorbells_of(end)
    end.engine.client.events = events


@pytest.mark.parametrize("which", ["active", "passive"])
def test_a_lost_doorbell_is_made_anew(sides: Sides, which: str) -> None:
    end, other = sides.active, sides.passive
    if which == "passive":
        end, other = other, end
    lose_doorbells(sides, end)
    other.engine.progress()
    before = rung_by(other, end).fileno()
    ring(rung_by(other, end))  # in vain
    end.engine._doorbells._due = 0.0  # the pause is over
    end.engine.progress()
    assert sides.world.broker.ops("doorbell_lost") == ["doorbell_lost"]
    end.engine.progress()
    assert len(doorbells_of(end)) == 1
    assert end.engine._wait_set.ready() == (False, [])
    other.engine.progress()
    assert rung_by(other, end).fileno() == before, "queue pairs know it by its number"
    assert end.engine._wait_set.ready() == (True, []), "for the lost ring"
    ring(rung_by(other, end))
    assert end.engine._wait_set.ready() == (True, [])
    end.engine.progress()
    assert len(sides.world.broker.ops("doorbell_lost")) == 1


@pytest.mark.parametrize("sent", [False, True])
def test_a_lost_doorbell_is_asked_for_again_where_an_alarm_ends_that(
    sides: Sides, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sides.active.engine
    lose_doorbells(sides, sides.active)
    post = engine.post

    def alarmed(op: str, **fields: Any) -> None:
        if sent:
            post(op, **fields)
        raise Alarm

    with monkeypatch.context() as patch:
        patch.setattr(engine, "post", alarmed)
        engine._doorbells._due = 0.0
        with pytest.raises(Alarm):
            engine.progress()
    engine._doorbells._due = 0.0
    engine.progress()
    engine.progress()
    assert doorbells_of(sides.active)


def test_a_lost_doorbell_is_not_requested_without_a_pause(sides: Sides) -> None:
    lose_doorbells(sides, sides.active)
    for _ in range(50):
        sides.active.engine.progress()
    assert not sides.world.broker.ops("doorbell_lost")


def test_a_poll_within_the_pause_asks_for_its_end_again(sides: Sides) -> None:
    """The wait set keeps one moment: an earlier one, of something else, took its place."""
    engine = sides.active.engine
    lose_doorbells(sides, sides.active)
    engine._wait_set._timer.drain()
    engine.progress()
    assert engine._wait_set._timer._due <= engine._doorbells._due


def leaves_the_broker(sides: Sides, end: End) -> None:
    """As after an interrupted call: the broker takes it for gone, and tells its peers so."""
    end.engine.client.alive = False
    sides.world.broker.leave(end.engine.client.number)


def test_without_a_broker_it_is_waited_for(sides: Sides) -> None:
    end = sides.active
    lose_doorbells(sides, end)
    leaves_the_broker(sides, end)
    end.engine._doorbells._due = 0.0
    end.engine.progress()
    assert not sides.world.broker.ops("doorbell_lost")
    assert end.engine._doorbells._due > 0.0, "it asks again after a pause"
    assert len(end.engine.pending_operations) == 1
    end.engine.client.reconnect()  # which tells all of each other anew
    end.engine.progress()
    end.engine._doorbells._due = 0.0
    end.engine.progress()
    assert len(doorbells_of(end)) == 1
    assert len(end.engine.pending_operations) == 0
    assert not sides.world.broker.ops("doorbell_lost"), "it has come already"


def test_a_process_that_lost_its_doorbell_and_then_the_broker_is_not_dead(sides: Sides) -> None:
    end, other = sides.active, sides.passive
    lose_doorbells(sides, end)
    other.engine.progress()
    known = other.engine.peer_adapter(end.adapter.uid)
    leaves_the_broker(sides, end)
    other.engine.progress()
    assert other.engine.peer_adapter(end.adapter.uid) is None
    assert not known.dead
    end.engine.client.reconnect()
    other.engine.progress()
    end.engine.progress()
    assert other.engine.peer_adapter(end.adapter.uid) is known
    ring(rung_by(other, end))
    assert end.engine._wait_set.ready() == (True, [])


def test_a_process_that_hung_up_when_the_broker_has_lost_it_is_dead(
    sides: Sides,
) -> None:
    """As one that became another program: its descriptors are closed, and nothing else is said."""
    end, other = sides.active, sides.passive
    sides.to("A4")
    end.engine.progress()
    other.engine.progress()
    known = other.engine.peer_adapter(end.adapter.uid)
    doorbells_of(end).clear()
    leaves_the_broker(sides, end)
    assert not known.dead
    other.engine.progress()
    assert known.dead
    assert other.engine._wait_set.ready() == (True, []), "other sleepers wake for the end"


def test_a_forked_child_rings_no_process(sides: Sides) -> None:
    """Else its parent's peers would listen for as long as the child lives."""
    sides.to("A4")
    sides.passive.engine.progress()
    sides.active.engine.progress()
    known = sides.passive.engine.peer_adapter(sides.active.adapter.uid)
    fds = [rung_by(sides.passive, sides.active).fileno(), *doorbells_of(sides.active)]
    child = os.fork()
    if child == 0:
        os._exit(known.doorbell_fd != -1 or any(is_open(fd) for fd in fds))
    assert os.waitpid(child, 0)[1] == 0
    assert known.doorbell_fd == fds[0]


def test_one_whose_taking_a_handler_interrupts_is_closed_or_listened_to(wait_set: WaitSet) -> None:
    """Its other end would be rung for ever, as that of one that is read."""
    pending: Any = types.SimpleNamespace(add=lambda _: None, remove=lambda _: None)
    for at in itertools.count():
        doorbells = Doorbells(wait_set, pending, lambda _: True)
        ringing, listening = socket.socketpair()
        fds = [listening.detach()]
        came = interrupted(at, partial(doorbells.take, f"p{at}", fds), WITHIN)
        listens = any(each.process == f"p{at}" for each in wait_set._doorbells.values())
        poll = select.poll()
        poll.register(ringing, select.POLLHUP)
        hung_up = bool(poll.poll(0))
        assert listens or hung_up or fds, f"interrupted at {at}"
        close_all(fds)
        ringing.close()
        if not came:
            break
    assert at > 3


class _Pending:
    """Polled objects; something is done just before one leaves."""

    def __init__(self) -> None:
        self.polled: list[Doorbells] = []
        self.meanwhile: list[Any] = []

    def add(self, doorbells: Doorbells) -> None:
        self.polled.append(doorbells)

    def remove(self, doorbells: Doorbells) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()
        self.polled = []


@pytest.mark.parametrize("when", ["while it is asked for", "when all have been asked for"])
def test_one_that_is_lost_again_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Another thread takes the news of the second loss."""
    waits: Any = types.SimpleNamespace(wake_at=lambda when: None)
    pending: Any = _Pending()
    asked: list[str] = []

    def ask(process: str) -> bool:
        asked.append(process)
        if when == "while it is asked for" and len(asked) == 1:
            doorbells.take(process, [])
        return True

    monkeypatch.setattr(shmnd.runtime.doorbells, "_PAUSE", 0.0)
    doorbells = Doorbells(waits, pending, ask)
    doorbells.take("p", [])
    if when == "when all have been asked for":
        pending.meanwhile.append(lambda: doorbells.take("p", []))
    for _ in range(4):
        if pending.polled:
            doorbells._tick()
    assert asked == ["p", "p"]
    assert not pending.polled
