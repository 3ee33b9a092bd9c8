# SPDX-License-Identifier: Apache-2.0
"""The first part of a wait is short: in it a thread sleeps where no death wakes it."""

import threading
import time

import pytest

from shmnd import ipc
from shmnd.ipc.common.ringing import PAUSE

LATER = 0.03
"""Seconds after which the server takes the request: the client sleeps by then."""


def seconds_without_deaths(name: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return how long a call waits until it sleeps where the death of its server wakes it."""
    began: list[float] = []
    with ipc.Server(name) as server, ipc.Client(name) as client:
        wait_long = client._answers._wait_long

        def noted_wait(*args: object) -> None:
            began.append(time.monotonic())
            wait_long(*args)

        monkeypatch.setattr(client._answers, "_wait_long", noted_wait)
        taker = threading.Timer(LATER, lambda: requests.append(server.receive(5)))
        requests: list[ipc.Request] = []
        taker.start()
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            client.call(1, timeout=6 * PAUSE)
        taker.join()
        requests.pop().respond(2)
    return began[0] - start


def test_a_server_that_takes_a_request_does_not_begin_the_wait_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the death of a server that has just taken it is seen after twice the time."""
    tries = [seconds_without_deaths(f"taken-{each}", monkeypatch) for each in range(4)]
    assert min(tries) < 1.5 * PAUSE, tries
