# SPDX-License-Identifier: Apache-2.0
"""An attempt to join the next broker that does not begin keeps no later one from it."""

from types import SimpleNamespace
from typing import Any

import pytest

from shmnd.runtime.broker.reconnect import Reconnect


class Alarm(BaseException):
    """What a handler of a signal raises."""


@pytest.mark.parametrize("error", [Alarm, RuntimeError])
def test_an_attempt_that_could_not_begin_is_made_again(error: type[BaseException]) -> None:
    made: list[str] = []
    wait_set: Any = SimpleNamespace(wake_at=lambda when: None, ring=lambda: None)
    reconnect = Reconnect(lambda: made.append("attempt"), lambda: True, wait_set)

    def cannot(step: object) -> None:
        raise error

    reconnect.aside = cannot
    try:
        reconnect.attempt(start=True)
    except Alarm:
        assert error is Alarm
    assert not made
    reconnect.aside = lambda step: step()
    reconnect.not_before = 0.0
    reconnect.attempt(start=True)
    assert made == ["attempt"]
