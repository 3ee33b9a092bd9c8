# SPDX-License-Identifier: Apache-2.0
"""Statuses and steps that the tests of connector states share."""

import gc
from types import FrameType
from typing import Any

from shmnd.status import Status
from unit.sides import STATES, End, Sides

S = Status


OK, PENDING = S.SUCCESS, S.PENDING


INVALID, ACTIVE = S.CONNECTION_INVALID, S.CONNECTION_ACTIVE


ASSOCIATED, PARAMETER_1 = S.ADDRESS_ALREADY_ASSOCIATED, S.INVALID_PARAMETER_1


REFUSED, CANCELED, ABORTED = S.CONNECTION_REFUSED, S.CANCELED, S.CONNECTION_ABORTED


def listening(end: End) -> Any:
    listener = end.new_listener()
    listener.bind((end.adapter._host, 0))
    listener.listen()
    end.kept.append(listener)
    return listener


# -- what the other side does ---------------------------------------------------------------------
def expect(sides: Sides, active: str, passive: str) -> None:
    assert (sides.active.state, sides.passive.state) == (STATES[active], STATES[passive])


def heard(sides: Sides) -> None:
    for end in sides.active, sides.passive:
        end.engine.client.be_heard()


RELEASES = ["close", "with", "del", "collect"]


def release(holder: Any, name: str, how: str) -> None:
    """End the life of an object in one of the ways that Python has."""
    if how == "close":
        getattr(holder, name).close()
        getattr(holder, name).close()
    elif how == "with":
        with getattr(holder, name):
            pass
    else:
        if how == "collect":
            obj = getattr(holder, name)
            obj.circle = obj
            del obj
        delattr(holder, name)
        gc.collect()


def is_of_library(frame: FrameType) -> bool:
    """Return whether a handler may interrupt here: not in the broker, nor in a fake."""
    if not _module(frame).startswith("shmnd."):
        return False
    caller: FrameType | None = frame
    while caller is not None:
        if _module(caller) == "unit.fakes" or _module(caller).startswith("shmnd.broker.service"):
            return False
        caller = caller.f_back
    return True


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))
