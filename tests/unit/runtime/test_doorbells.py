# SPDX-License-Identifier: Apache-2.0
"""What processes ring each other by: one each way, taken, dropped, lost and made anew."""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import shmnd.runtime.waiting
from shmnd.common.descriptors import Descriptor, Doorbell, ring
from shmnd.runtime.waiting import Watch
from unit.opened import is_open
from unit.sides import Dancers, End


@pytest.fixture
def watch() -> Iterator[Watch]:
    with ExitStack() as stack:
        watch = Watch()
        stack.callback(watch.close)
        yield watch


def doorbell(watch: Watch, process: str = "p") -> tuple[Descriptor, bool]:
    """Return the end to ring at, and whether the watch listens at the other."""
    ringing, listening = socket.socketpair()
    return Descriptor(ringing.detach()), watch.listen(listening.detach(), process)


def doorbells_of(end: End) -> dict[int, Doorbell]:
    """Where others ring this one."""
    found: dict[int, Doorbell] = end.hub._watch._doorbells
    return found


def rung_by(end: End, other: End) -> Any:
    """What this one rings the other one by."""
    return end.hub._peers._processes[other.hub.process].doorbell


# -- the watch --


def test_rings_are_taken_all_at_once(watch: Watch) -> None:
    mine, listens = doorbell(watch)
    assert listens
    assert watch.ready() == (False, [])
    for _ in range(100):
        ring(mine)
    assert watch.ready() == (True, [])
    assert watch.ready() == (False, [])


def test_a_full_one_takes_no_more_rings_and_holds_nobody_up(watch: Watch) -> None:
    mine, _ = doorbell(watch)
    poll = select.poll()
    poll.register(mine, select.POLLOUT)
    rings = 0
    while rings < 100_000:
        ring(mine)
        rings += 1
    assert not poll.poll(0)
    assert watch.ready() == (True, [])
    assert poll.poll(0)


def test_one_that_is_dropped_is_closed(watch: Watch) -> None:
    mine, _ = doorbell(watch)
    (listening,) = watch._doorbells
    ring(mine)
    mine.close()
    assert watch.ready() == (True, []), "the last ring is heard"
    assert watch.ready() == (True, [])
    assert watch.ready() == (False, [])
    assert not is_open(listening)


def test_ringing_where_nobody_listens_is_no_signal(watch: Watch) -> None:
    mine, _ = doorbell(watch)
    watch.close()
    for _ in range(3):
        ring(mine)


def test_a_process_that_keeps_them_all_is_listened_to_at_some(watch: Watch) -> None:
    most = shmnd.runtime.waiting._DOORBELLS_OF_ONE
    kept = [doorbell(watch) for _ in range(most + 3)]
    assert [listens for _, listens in kept] == [True] * most + [False] * 3
    assert doorbell(watch, "another")[1]
    ring(kept[0][0])
    for ringing, _ in kept[1:4]:
        ringing.close()
    assert doorbell(watch)[1], "those that are over do not count"
    assert watch.ready() == (True, []), "a ring that was taken to see that counts"


# -- two processes --


def test_each_is_rung_by_the_other(dancers: Dancers) -> None:
    dancers.to("A4")
    ends = (dancers.active, dancers.passive)
    for end in ends:
        end.hub.progress()
        assert len(doorbells_of(end)) == 1
    for one, other in (ends, ends[::-1]):
        assert one.hub._watch.ready() == (False, [])
        ring(rung_by(other, one))
        assert one.hub._watch.ready() == (True, [])


def test_one_that_is_told_of_again_needs_no_other_doorbell(dancers: Dancers) -> None:
    dancers.to("A4")
    before = rung_by(dancers.passive, dancers.active)
    dancers.active.hub.progress()
    (first,) = doorbells_of(dancers.active)
    dancers.active.hub.post("doorbell_lost", process=dancers.passive.hub.process)
    dancers.active.hub.progress()
    assert len(doorbells_of(dancers.active)) == 2
    dancers.passive.hub.progress()
    dancers.active.hub.progress()
    assert list(doorbells_of(dancers.active)) == [first]
    assert rung_by(dancers.passive, dancers.active) is before


def lose_doorbells(dancers: Dancers, end: End) -> None:
    """As if no descriptor had been free when they came."""
    events = end.hub.client.events

    def lossy() -> Any:
        taken = events()
        for event, fds in taken:
            if event["ev"] == "doorbell":
                event["fds_lost"] = True
                while fds:
                    os.close(fds.pop())
        return taken

    end.hub.client.events = lossy
    dancers.to("A4")
    end.hub.progress()
    assert not doorbells_of(end)
    end.hub.client.events = events


@pytest.mark.parametrize("which", ["active", "passive"])
def test_a_lost_doorbell_is_made_anew(dancers: Dancers, which: str) -> None:
    end, other = dancers.active, dancers.passive
    if which == "passive":
        end, other = other, end
    lose_doorbells(dancers, end)
    other.hub.progress()
    before = rung_by(other, end).fileno()
    ring(rung_by(other, end))  # in vain
    end.hub._doorbells._due = 0.0  # the pause is over
    end.hub.progress()
    assert dancers.world.broker.ops("doorbell_lost") == ["doorbell_lost"]
    end.hub.progress()
    assert len(doorbells_of(end)) == 1
    assert end.hub._watch.ready() == (False, [])
    other.hub.progress()
    assert rung_by(other, end).fileno() == before, "queue pairs know it by its number"
    assert end.hub._watch.ready() == (True, []), "for what was rung in vain"
    ring(rung_by(other, end))
    assert end.hub._watch.ready() == (True, [])
    end.hub.progress()
    assert len(dancers.world.broker.ops("doorbell_lost")) == 1


def test_what_is_lost_is_not_asked_for_without_a_pause(dancers: Dancers) -> None:
    lose_doorbells(dancers, dancers.active)
    for _ in range(50):
        dancers.active.hub.progress()
    assert not dancers.world.broker.ops("doorbell_lost")


def leaves_the_broker(dancers: Dancers, end: End) -> None:
    """As after an interrupted call: the broker takes it for gone, and tells its peers so."""
    end.hub.client.alive = False
    dancers.world.broker.leave(end.hub.client.number)


def test_without_a_broker_it_is_waited_for(dancers: Dancers) -> None:
    end = dancers.active
    lose_doorbells(dancers, end)
    leaves_the_broker(dancers, end)
    end.hub._doorbells._due = 0.0
    end.hub.progress()
    assert not dancers.world.broker.ops("doorbell_lost")
    assert end.hub._doorbells._due > 0.0, "it looks again after a pause"
    assert len(end.hub.affairs) == 1
    end.hub.client.reconnect()  # which tells all of each other anew
    end.hub.progress()
    end.hub._doorbells._due = 0.0
    end.hub.progress()
    assert len(doorbells_of(end)) == 1
    assert len(end.hub.affairs) == 0
    assert not dancers.world.broker.ops("doorbell_lost"), "it has come already"


def test_who_has_lost_its_doorbell_and_then_the_broker_is_not_dead(dancers: Dancers) -> None:
    end, other = dancers.active, dancers.passive
    lose_doorbells(dancers, end)
    other.hub.progress()
    known = other.hub.peer_adapter(end.adapter.uid)
    leaves_the_broker(dancers, end)
    other.hub.progress()
    assert other.hub.peer_adapter(end.adapter.uid) is None
    assert not known.dead
    end.hub.client.reconnect()
    other.hub.progress()
    end.hub.progress()
    assert other.hub.peer_adapter(end.adapter.uid) is known
    ring(rung_by(other, end))
    assert end.hub._watch.ready() == (True, [])


def test_who_has_listened_and_hung_up_when_the_broker_has_lost_it_is_dead(
    dancers: Dancers,
) -> None:
    """As one that became another program: its descriptors are closed, and nothing else is said."""
    end, other = dancers.active, dancers.passive
    dancers.to("A4")
    end.hub.progress()
    other.hub.progress()
    known = other.hub.peer_adapter(end.adapter.uid)
    doorbells_of(end).clear()
    leaves_the_broker(dancers, end)
    assert not known.dead
    other.hub.progress()
    assert known.dead
    assert other.hub._watch.ready() == (True, []), "others who sleep look at what is over"


def test_a_forked_child_rings_nobody(dancers: Dancers) -> None:
    """Else its parent's peers would listen for as long as the child lives."""
    dancers.to("A4")
    dancers.passive.hub.progress()
    dancers.active.hub.progress()
    known = dancers.passive.hub.peer_adapter(dancers.active.adapter.uid)
    fds = [rung_by(dancers.passive, dancers.active).fileno(), *doorbells_of(dancers.active)]
    child = os.fork()
    if child == 0:
        os._exit(known.doorbell_fd != -1 or any(is_open(fd) for fd in fds))
    assert os.waitpid(child, 0)[1] == 0
    assert known.doorbell_fd == fds[0]
