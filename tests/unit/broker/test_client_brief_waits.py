# SPDX-License-Identifier: Apache-2.0
"""Calls with brief waits: a broker that is slow costs a moment, and not the session."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shmnd.broker.place import Place
from shmnd.broker.service.server import Server
from shmnd.common import brief_waits
from shmnd.common.brief_waits import TooLate, brief_until, briefly, refuse_brief_wait
from shmnd.status import Status
from unit.broker.client_kit import KEY, Make, greeted, readable
from unit.broker.wire import PATIENCE


def test_a_call_that_is_answered_in_time_is_as_any_other(make: Make, broker: Server) -> None:
    client = make()
    until = time.monotonic() + PATIENCE
    client.call_by(until, "adapter", key=KEY)
    with pytest.raises(OSError, match=r"^mine: .* belongs to another process") as caught:
        make(key=KEY[::-1]).call_by(until, "adapter", caller="mine", key=KEY)
    assert not isinstance(caught.value, TooLate)


def test_a_call_that_is_not_answered_in_time_leaves_the_session(place: Place, make: Make) -> None:
    """The next request follows it, and its late reply is for no call."""
    with greeted(place, make) as (broker, client), ThreadPoolExecutor(1) as pool:
        sock = client._sock
        with pytest.raises(TooLate, match=r"^mine: .*\[IO_TIMEOUT\]") as caught:
            client.call_by(time.monotonic(), "segment", caller="mine")
        assert caught.value.status is Status.IO_TIMEOUT
        client.post("segment_close")
        assert client.alive
        late = broker.read()
        assert (late["op"], broker.read()["op"]) == ("segment", "segment_close")
        next_one = pool.submit(client.call, "sync")
        asked = broker.read()
        broker.say(re=late["id"], status=int(Status.INTERNAL_ERROR), message="late")
        broker.say(re=asked["id"], status=0, message="", mine=True)
        assert next_one.result(PATIENCE)["mine"]
        assert client._sock is sock
        assert client.events() == []


def test_a_broker_that_leaves_or_is_gone_is_not_replaced(place: Place, make: Make) -> None:
    with greeted(place, make) as (broker, client), ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            call = pool.submit(client.call_by, time.monotonic() + PATIENCE, "sync")
            if client.alive:
                broker.read()
                broker.hang_up()
            assert isinstance(call.exception(PATIENCE), TooLate)
            assert not client.alive


def test_a_call_with_brief_waits_waits_for_no_other_thread(place: Place, make: Make) -> None:
    with greeted(place, make) as (broker, client), ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.call, "sync")
        asked = broker.read()
        with pytest.raises(TooLate):
            client.call_by(time.monotonic(), "segment")
        broker.say(re=asked["id"], status=0, message="")
        assert call.result(PATIENCE)["re"] == asked["id"]


@pytest.mark.parametrize("brief", [False, True])
def test_a_reply_wakes_the_thread_that_waits_for_it_alone(
    place: Place, make: Make, brief: bool
) -> None:
    """Others, which cannot read it, would try again and again until it is read."""
    seen: list[bool] = []
    with greeted(place, make) as (broker, client), ThreadPoolExecutor(1) as pool:
        waits = client._wait

        def wait_and_look(*arguments: object, **more: object) -> None:
            waits(*arguments, **more)  # type: ignore[arg-type]
            seen.append(readable(client))

        client._wait = wait_and_look  # type: ignore[method-assign]
        until = time.monotonic() + PATIENCE
        call = pool.submit(client.call_by, until, "a") if brief else pool.submit(client.call, "a")
        asked = broker.read()
        broker.say(re=asked["id"], status=0, message="")
        call.result(PATIENCE)
        assert set(seen) == {False}
        assert not readable(client)
        broker.say(ev="doorbell")
        assert readable(client, PATIENCE), "as before after the call"
        assert [event["ev"] for event, _ in client.events()] == ["doorbell"]


def test_brief_waits_are_of_one_thread_and_end_with_the_call() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert brief_until() is None

        def call() -> str:
            briefly(lambda: None)  # as in the handler of a signal
            assert brief_until() is not None
            assert pool.submit(brief_until).result(PATIENCE) is None
            with pytest.raises(TooLate, match=r"^mine: "):
                refuse_brief_wait("mine")
            return "made"

        assert briefly(call) == "made"
        with pytest.raises(ZeroDivisionError):
            briefly(lambda: 1 // 0)
        assert brief_until() is None
        refuse_brief_wait("mine")


def test_a_forked_child_has_no_thread_with_brief_waits() -> None:
    """Its threads may get the numbers of the parent's."""
    begun, over = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        over.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(briefly, call)
        assert begun.wait(PATIENCE)
        child = os.fork()
        if child == 0:
            os._exit(len(brief_waits._brief))
        over.set()
        done.result(PATIENCE)
    assert os.waitpid(child, 0)[1] == 0
