# SPDX-License-Identifier: Apache-2.0
"""How a process joins the next broker, and calls that interrupt this."""

from types import SimpleNamespace
from typing import Any

import pytest

from shmnd import NdError, Status
from shmnd.runtime.broker.reconnect import Reconnect
from unit.fakes import FakeAdapter


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


def test_a_call_within_a_replay_whose_broker_goes_is_refused(client: FakeAdapter) -> None:
    """A signal handler makes it, or a finaliser; the call that it interrupts continues."""
    engine: Any = client._engine
    session = engine.client
    replay = session.on_reconnect
    refused: list[NdError] = []

    def interrupted(told: Any) -> None:
        if not refused:
            session._hang_up()
            with pytest.raises(NdError, match=r"Listener\.listen: .*call again") as caught:
                engine.call("sync", caller="Listener.listen")
            refused.append(caught.value)
        replay(told)

    session.on_reconnect = interrupted
    session._hang_up()
    engine.call("sync")
    assert [each.status for each in refused] == [Status.DEVICE_NOT_READY]
