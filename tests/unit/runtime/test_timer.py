# SPDX-License-Identifier: Apache-2.0
"""The timer of a process: of all moments that are set, by any thread, the first one counts.

In between comes another thread, or a finaliser in the same one.
"""

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from shmnd.common import descriptors
from shmnd.common.descriptors import Timer
from shmnd.common.native import set_timerfd

WAIT = 30.0
FAR = 1000.0

Between = Callable[[Callable[[], None]], None]


def another_thread(call: Callable[[], None]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(0.1)  # it may have to wait for this one


def a_finaliser(call: Callable[[], None]) -> None:
    call()


def interrupted(real: Callable[..., Any], between: list[Callable[[], None]]) -> Callable[..., Any]:
    """Have something come in between the first time that a function is called."""

    def call(*arguments: Any) -> Any:
        if between:
            between.pop()()
        return real(*arguments)

    return call


def is_over(timer: Timer) -> bool:
    return bool(select.select([timer], [], [], WAIT)[0])


@pytest.mark.parametrize("come", [another_thread, a_finaliser])
def test_an_earlier_moment_that_is_set_meanwhile(
    come: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = Timer()
    between = [lambda: come(lambda: timer.set(time.monotonic() + 0.01))]
    monkeypatch.setattr(descriptors, "set_timerfd", interrupted(set_timerfd, between))
    timer.set(time.monotonic() + FAR)
    assert not between
    assert is_over(timer)


@pytest.mark.parametrize("come", [another_thread, a_finaliser])
def test_a_moment_that_is_set_while_the_last_one_is_drained(
    come: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = Timer()
    timer.set(time.monotonic())
    assert is_over(timer)
    between = [lambda: come(lambda: timer.set(time.monotonic()))]
    monkeypatch.setattr(os, "read", interrupted(os.read, between))
    timer.drain()
    assert not between
    timer.set(time.monotonic() + FAR)
    assert is_over(timer)
