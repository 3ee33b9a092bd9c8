# SPDX-License-Identifier: Apache-2.0
"""How a process joins the next broker, and calls that interrupt this."""

import contextlib
import time
from types import SimpleNamespace
from typing import Any

import pytest

from shmnd import NdError, Status
from shmnd.runtime.broker.announcements import Names
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

    reconnect.run_in_thread = cannot
    with pytest.raises(Alarm) if error is Alarm else contextlib.nullcontext():
        reconnect.attempt(start=True)
    assert not made
    reconnect.run_in_thread = lambda step: step()
    reconnect.not_before = 0.0
    reconnect.attempt(start=True)
    assert made == ["attempt"]


def test_a_poll_before_the_next_attempt_asks_for_its_moment_again() -> None:
    """The wait set keeps one moment: an earlier one, of something else, took its place."""
    moments: list[float] = []
    wait_set: Any = SimpleNamespace(wake_at=moments.append, ring=lambda: None)
    reconnect = Reconnect(lambda: None, lambda: False, wait_set)
    reconnect.attempt(start=False)
    reconnect.attempt(start=False)
    assert moments == [reconnect.not_before] * 2


def test_a_poll_before_an_entry_is_dropped_asks_for_its_moment_again() -> None:
    moments: list[float] = []
    engine: Any = SimpleNamespace(
        progress=lambda: None, peer_adapter=lambda uid: None, wake_at=moments.append
    )
    names = Names(engine)
    later = time.monotonic() + 1000
    names._unconfirmed = {("gone", 1): later, ("gone", 2): 0.0}
    names._progress()
    assert names._unconfirmed == {("gone", 1): later}
    assert moments == [later]


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
