# SPDX-License-Identifier: Apache-2.0
"""A wait whose object the handler of a signal closes ends with Closed, until its time is up."""

import asyncio
import itertools
import time
from collections.abc import Callable, Sized
from typing import Any

import pytest

from interrupting import handled
from shmnd import ipc

SHORT = 0.01
"""Seconds of a wait for what never comes."""
SOURCES = (
    *("client.py", "notifying.py", "reader.py", "shared_name.py", "subscriber.py", "waiter.py"),
    *("waiting.py", "waitset.py"),
)


def expired(found: Sized) -> None:
    """Raise TimeoutError, as other waits do, where a wait has found nothing."""
    assert not found
    raise TimeoutError


Case = tuple[Callable[[], list[Any]], Callable[[Any], Any]]
"""The objects, of which the first is closed; and the wait."""

CASES: dict[str, Case] = {
    "areceive": (
        lambda: [ipc.Subscriber("t")],
        lambda sub: asyncio.run(sub.areceive(SHORT)),
    ),
    "key": (
        lambda: [ipc.BlackboardReader("b"), ipc.Blackboard("b", {"x": "f8"})],
        lambda reader: reader.wait("x", timeout=SHORT),
    ),
    "await key": (
        lambda: [ipc.BlackboardReader("b"), ipc.Blackboard("b", {"x": "f8"})],
        lambda reader: asyncio.run(reader.await_change("x", timeout=SHORT)),
    ),
    "call": (
        lambda: [ipc.Client("s"), ipc.Server("s")],
        lambda client: client.call(1, timeout=SHORT),
    ),
    "ids": (
        lambda: [ipc.Listener("e"), ipc.Notifier("e")],
        lambda listener: expired(listener.wait(SHORT)),
    ),
    "await ids": (
        lambda: [ipc.Listener("e"), ipc.Notifier("e")],
        lambda listener: expired(asyncio.run(listener.await_ids(SHORT))),
    ),
    "ready": (
        lambda: [ipc.WaitSet(queue := ipc.Queue()), queue],
        lambda both: expired(both.wait(SHORT)),
    ),
    "await ready": (
        lambda: [ipc.WaitSet(queue := ipc.Queue()), queue],
        lambda both: expired(asyncio.run(both.await_ready(SHORT))),
    ),
    "await ready of a subscriber": (
        lambda: [ipc.Subscriber("t")],
        lambda sub: expired(asyncio.run(ipc.WaitSet(sub).await_ready(SHORT))),
    ),
    "await ready of a reader": (
        lambda: [ipc.BlackboardReader("b"), ipc.Blackboard("b", {"x": "f8"})],
        lambda reader: expired(asyncio.run(ipc.WaitSet(reader).await_ready(SHORT))),
    ),
    "acall": (
        lambda: [ipc.Client("s"), ipc.Server("s")],
        lambda client: asyncio.run(client.acall(1, timeout=SHORT)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_close_within_a_wait(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmnd.ipc.blackboard.reader.PAUSE", 0.0)  # it sleeps at its descriptor
    make, wait = CASES[case]
    closed_in_time = 0
    for place in itertools.count():
        objects = make()
        ended: list[str] = []
        closed: list[float] = []

        def run(objects: list[Any] = objects, ended: list[str] = ended) -> None:
            with pytest.raises((ipc.Closed, TimeoutError)) as caught:
                wait(objects[0])
            ended.append(caught.typename)

        def close(objects: list[Any] = objects, closed: list[float] = closed) -> None:
            objects[0].close()
            closed.append(time.monotonic())  # last: on a busy machine the time may end within it

        begun = time.monotonic()
        came = handled(place, run, lambda path: path.endswith(SOURCES), close)
        if closed and closed[0] - begun < SHORT:
            assert ended == ["Closed"], f"closed in time, at place {place}"
            closed_in_time += 1
        for each in objects:
            each.close()
        if not came:
            break
    assert closed_in_time > 2, f"of {place} places"
