# SPDX-License-Identifier: Apache-2.0
"""A time limit that the program sets by SIGALRM ends a call by itself, as TimeoutError.

That is an OSError, which the library handles in many places: where a file is not there, where a
socket is closed. None of them takes the handler's for one of these.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from interrupting import inside, interrupted
from shmnd import ipc
from shmnd.common.interruption import Ignoring

within = inside(shmnd, json)


class TimeLimit(TimeoutError):
    """What the handler raises."""


def open_adapter() -> Any:
    return shmnd.open_adapter()


def listen() -> Any:
    listener = adapter().create_listener()
    listener.bind(("127.0.0.1", 0))
    listener.listen(5)
    return listener


_adapter: list[shmnd.Adapter] = []
_numbers = itertools.count()


def adapter() -> shmnd.Adapter:
    return _adapter[0]


def allocate() -> Any:
    return adapter().allocate(4096, name=f"/limits-{os.getpid()}-{next(_numbers)}")


def attach() -> Any:
    return adapter().attach("/limits")


CALLS: dict[str, tuple[Callable[[], Any], int]] = {
    "open_adapter": (open_adapter, 1),
    "listen": (listen, 1),
    "allocate": (allocate, 1),
    "attach": (attach, 1),
    "Publisher": (lambda: ipc.Publisher("limits", "f8"), 7),
    "Subscriber": (lambda: ipc.Subscriber("limits"), 7),
    "Queue": (ipc.Queue, 1),
    "Server": (lambda: ipc.Server("limits"), 11),
    "Blackboard": (lambda: ipc.Blackboard("limits", {"a": "f8"}), 7),
    "topics": (ipc.topics, 1),
}
"""The calls, and how far apart the places are that are taken."""


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of a file as it is opened
@pytest.mark.parametrize("name", CALLS)
def test_a_time_limit_ends_a_call_at_each_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []  # in a finaliser, from which nothing can be raised
    monkeypatch.setattr(sys, "unraisablehook", lambda each: reported.append(each.exc_type))
    call, step = CALLS[name]
    with shmnd.open_adapter() as opened:
        _adapter[:] = [opened]
        named = opened.allocate(4096, name="/limits") if name == "attach" else None
        made: list[Any] = []
        for at in itertools.count(0, step):  # a call is interrupted by all but the last
            was = interrupted(at, lambda: made.append(call()), within, TimeLimit)
            told = not made or TimeLimit in reported
            assert was == told, f"the limit at place {at} was forgotten"
            reported.clear()
            while made and hasattr(made[-1], "close"):
                made.pop().close()
            made.clear()
            if not was:
                break
        assert at > step
        del named


def test_the_ignored_exceptions() -> None:
    def handler(number: int, frame: Any) -> None:
        raise TimeLimit

    with Ignoring(OSError):
        raise FileNotFoundError("a fault")
    with pytest.raises(KeyError), Ignoring(OSError):
        raise KeyError("another kind")
    with pytest.raises(TimeLimit), Ignoring(OSError):
        handler(1, sys._getframe())
