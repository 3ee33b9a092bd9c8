# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal closes a connector, or a listener, in the midst of any call of it."""

import contextlib
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from interrupting import handled_where
from shmnd.common.held import Held
from shmnd.connector import Connector
from shmnd.handshake.attempt import State
from shmnd.handshake.queue_pair_link import QpState
from shmnd.listener import Listener
from shmnd.status import NdError, Status
from unit.fakes import World
from unit.handshake.connector_kit import is_of_library
from unit.sides import Sides

Call = Callable[[Sides], Any]

_RESTING = {QpState.IDLE, QpState.CLOSED}


CALLS: dict[str, tuple[str, Call, Call]] = {
    "bind": ("active", lambda sides: None, Sides.bind),
    "connect": ("active", lambda sides: None, Sides.connect),
    "the answer to a connect": ("active", Sides.offer, Sides.accept),
    "complete_connect": (
        "active",
        Sides.offer_and_accept,
        lambda sides: sides.active.connector.complete_connect(),
    ),
    "the offer": ("passive", Sides.connect, Sides.request),
    "accept": ("passive", Sides.offer, Sides.accept),
    "reject": ("passive", Sides.offer, lambda sides: sides.passive.connector.reject()),
    "reject of an answer": (
        "active",
        Sides.offer_and_accept,
        lambda sides: sides.active.connector.reject(),
    ),
    "cancel of a connect": (
        "active",
        Sides.connect,
        lambda sides: sides.active.connector.cancel_overlapped_requests(),
    ),
    "cancel of an accept": (
        "passive",
        Sides.offer_and_accept,
        lambda sides: sides.passive.connector.cancel_overlapped_requests(),
    ),
    "notify_disconnect": (
        "active",
        Sides.complete,
        lambda sides: sides.active.connector.notify_disconnect(),
    ),
    "disconnect": ("active", Sides.complete, lambda sides: sides.active.connector.disconnect()),
    "the end of a peer": (
        "active",
        lambda sides: (sides.complete(), sides.passive.connector.disconnect()),
        lambda sides: sides.active.state,
    ),
}


def begins(frame: FrameType, event: str) -> bool:
    """Return whether a function of the library begins. The fake broker is not interrupted."""
    return event == "call" and is_of_library(frame)


def closed_within(at: int, closes: Connector | Listener, sides: Sides, call: Call) -> bool:
    """Close an object at the `at`-th place of a call; return False when the call was over before.

    The call may fail by that.
    """

    def run() -> None:
        with contextlib.suppress(NdError):
            call(sides)

    return handled_where(at, run, begins, closes.close)


def closed_at(number: int, side: str, before: Call, call: Call) -> bool:
    """Return False when the call was over before."""
    world = World()
    try:
        return _closed_at(Sides(world), number, side, before, call)
    finally:
        world.close()


def _closed_at(sides: Sides, number: int, side: str, before: Call, call: Call) -> bool:
    before(sides)
    end = getattr(sides, side)
    if not closed_within(number, end.connector, sides, call):
        return False
    for each in sides.active, sides.passive:
        assert each.state in State
    assert end.connector._state is State.CLOSED
    assert not end.connector._pending, end.connector._pending
    assert end.qp._state in _RESTING, end.qp._state
    if side == "active" and sides.connecting is not None:
        assert sides.connecting.status is not Status.PENDING
    return True


@pytest.mark.parametrize("what", CALLS)
def test_a_close_in_the_midst_of_a_call_closes(what: str) -> None:
    number = 0
    while closed_at(number, *CALLS[what]):
        number += 1
    assert number > 2


@pytest.mark.parametrize("call", [Sides.request, Sides.connect], ids=["request", "connect"])
def test_a_close_of_a_listener_in_the_midst_of_a_call_ends_its_requests(call: Call) -> None:
    number, left = 0, True
    while left:
        world = World()
        sides = Sides(world)
        left = closed_within(number, sides.listener, sides, call)
        for each in sides.active, sides.passive:
            assert each.state in State
        if left:
            assert sides.listener._closed
            assert not sides.listener._pending
            assert sides.requesting is None or sides.requesting.status is not Status.PENDING
        world.close()
        number += 1
    assert number > 2


def test_a_call_within_another_is_refused() -> None:
    world = World()
    sides = Sides(world)
    sides.offer()
    with Held(sides.passive.connector._lock), pytest.raises(NdError, match="interrupts") as caught:
        sides.accept()
    assert caught.value.status is Status.INVALID_DEVICE_STATE
    sides.accept()
    world.close()
