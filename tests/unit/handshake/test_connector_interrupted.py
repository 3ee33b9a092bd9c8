# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal raises at every place of a call that makes a connection.

The call has taken effect, or was taken back, or can be made again: nothing is left half made.
"""

import functools
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import pytest

from interrupting import Alarm, interrupted_where
from shmnd.connector import Connector
from shmnd.handshake import queue_pair_link
from shmnd.handshake.attempt import State
from shmnd.handshake.queue_pair_link import QpState, QueuePairLink
from shmnd.status import Status
from unit.fakes import World
from unit.handshake.connector_kit import CANCELED, OK, PENDING, REFUSED, is_of_library
from unit.sides import Sides, outcome


def is_place(frame: FrameType, event: str) -> bool:
    """Return whether a handler may raise here: where a function begins, or has returned."""
    return event in ("call", "return", "c_return") and is_of_library(frame)


def at_each_place(
    before: Callable[[Sides], Any],
    call: Callable[[Sides], Any],
    after: Callable[[Sides], str],
) -> Counter[str]:
    """Interrupt a call at each place; count what `after` says of it."""
    found = Counter[str]()
    for number in itertools.count():
        world = World()
        sides = Sides(world)
        before(sides)
        more = interrupted_where(number, functools.partial(call, sides), is_place, Alarm)
        if more:
            found[after(sides)] += 1
        world.close()
        if not more:
            break
    return found


def comes_about(sides: Sides) -> None:
    """The rest of the way to a connection, and its end."""
    assert sides.active.state is State.ACCEPTED
    assert outcome(sides.active.connector.complete_connect) is OK
    ends(sides)


def ends(sides: Sides) -> None:
    assert sides.active.state is sides.passive.state is State.CONNECTED
    told = sides.passive.connector.notify_disconnect()
    assert outcome(sides.active.connector.disconnect) is OK
    assert sides.passive.state is State.DOWN
    assert told.status is OK
    assert not sides.active.connector._pending


def delivered(sides: Sides, side: str, call: str) -> list[Status]:
    return [each.status for each in getattr(sides, side).file.poll() if each.call == call]


@pytest.mark.parametrize("bound", [False, True])
def test_connect(bound: bool) -> None:
    def after(sides: Sides) -> str:
        connector = sides.active.connector
        if connector._state is State.CONNECTING:
            found = "took effect"
        else:
            found = "taken back"
            assert sides.active.qp._state is QpState.IDLE
            assert not connector._pending
            assert delivered(sides, "active", "Connector.connect") in ([], [CANCELED])
            assert outcome(sides.connect) is PENDING
        sides.request()
        assert sides.passive.state is State.OFFERED
        assert outcome(sides.listener.get_connection_request, sides.passive.new_connector()) is (
            PENDING
        )  # no offer but that one
        sides.accept()
        comes_about(sides)
        return found

    found = at_each_place(lambda sides: bound and sides.bind(), Sides.connect, after)
    assert found["taken back"] > 100
    assert found["took effect"] <= 2


def test_accept() -> None:
    def after(sides: Sides) -> str:
        connector = sides.passive.connector
        if connector._state is State.ACCEPTING:
            comes_about(sides)
            return "took effect"
        assert sides.passive.qp._state is QpState.IDLE
        assert not connector._pending
        if connector._state is State.OFFERED:
            assert outcome(sides.accept) is PENDING
            comes_about(sides)
            return "taken back"
        assert connector._state is State.CLOSED
        assert delivered(sides, "passive", "Connector.accept") in ([], [CANCELED])
        assert sides.active.state in {State.NEW, State.CLOSED}
        assert sides.connecting.status in {OK, REFUSED}
        assert not sides.passive.engine.broker_state.live
        assert sides.active.qp._state is QpState.IDLE
        return "canceled"

    found = at_each_place(Sides.offer, Sides.accept, after)
    assert found["taken back"] > 40
    assert found["canceled"] > 40
    assert found["took effect"] <= 2


def test_complete_connect() -> None:
    def after(sides: Sides) -> str:
        again = outcome(sides.active.connector.complete_connect)
        completed = delivered(sides, "active", "Connector.complete_connect")
        assert completed in ([], [OK])
        ends(sides)
        return "taken back" if again is OK else again.name

    found = at_each_place(
        Sides.offer_and_accept, lambda sides: sides.active.connector.complete_connect(), after
    )
    assert set(found) == {"taken back", "CONNECTION_INVALID"}
    assert min(found.values()) > 4


def test_an_event_that_is_interrupted_is_delivered_and_the_interruption_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    sides = Sides(world)
    sides.connect()
    taken = Connector._on_event
    events: list[str] = []

    def interrupted(connector: Connector, event: Any, fds: list[int]) -> None:
        events.append(event["ev"])
        if len(events) == 1:
            raise Alarm
        taken(connector, event, fds)

    sides.listener.get_connection_request(sides.passive.connector)
    monkeypatch.setattr(Connector, "_on_event", interrupted)
    with pytest.raises(Alarm):
        sides.passive.engine.progress()
    assert events == ["offer", "offer"]
    assert sides.passive.state is State.OFFERED
    world.close()


class Anything:
    """An object that others refer to weakly."""

    _state = 0


def drop_interrupted(dropped: list[Anything]) -> None:
    """End the life of an object while a handler raises wherever a function begins."""

    def raising(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            raise Alarm

    sys.setprofile(raising)
    try:
        dropped.clear()
    finally:
        sys.setprofile(None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_end_of_a_queue_pair_leaves_no_entry_where_a_handler_raises() -> None:
    dropped = [Anything()]
    link = QueuePairLink(cast("Any", None), cast("Any", dropped[0]))
    assert link._number in queue_pair_link._pairs
    drop_interrupted(dropped)
    assert link._number not in queue_pair_link._pairs


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_end_of_a_connector_leaves_no_link_to_poll_where_a_handler_raises() -> None:
    world = World()
    sides = Sides(world)
    pending = sides.active.engine.pending_operations
    dropped, other = [Anything()], Anything()
    before = len(pending.links)
    pending.add_link(cast("Any", dropped[0]), cast("Any", other))
    assert len(pending.links) == before + 1
    drop_interrupted(dropped)
    assert len(pending.links) == before
    world.close()
