# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises within a poll: the next poll does the rest.

`TimeoutError`, the usual exception of a handler of SIGALRM, is an OSError, as are the failures that
the library expects of its descriptors.
"""

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import shmnd
from interrupting import Alarm, Interrupted, inside, interrupted
from shmnd import Adapter, NdError, Status
from shmnd.common.descriptors import Doorbell, EventCount
from unit.sides import Sides

WITHIN = inside(shmnd)
KINDS = [Alarm, Interrupted, TimeoutError, ValueError]


class Asking:
    """Polled once at the next poll: its first poll is interrupted."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.ticks = 0

    def _tick(self) -> None:
        self.ticks += 1
        if self.ticks == 1:
            raise self.kind


@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_to_be_polled_soon_is_polled_again(kind: type[BaseException]) -> None:
    with shmnd.open_adapter() as adapter:
        asking, another = Asking(kind), Asking(KeyError)
        another.ticks = 1
        adapter._engine.pending_operations.poll_soon(asking)
        adapter._engine.pending_operations.poll_soon(another)
        with pytest.raises(kind):
            adapter._engine.progress()
        adapter._engine.progress()
        assert (asking.ticks, another.ticks) == (2, 2)
        adapter._engine.progress()
        assert (asking.ticks, another.ticks) == (2, 2)


def is_readable(adapter: Adapter) -> bool:
    return bool(select.select([adapter._engine.epoll_fd], [], [], 0)[0])


@pytest.mark.parametrize("waits", [False, True], ids=["poll", "wait"])
@pytest.mark.parametrize("kind", KINDS)
def test_rings_that_an_interrupted_poll_has_taken_are_handed_over(
    kind: type[BaseException], waits: bool
) -> None:
    with shmnd.open_adapter() as adapter:
        engine = adapter._engine
        engine.progress()
        asking = Asking(kind)
        engine.pending_operations.poll_soon(asking)
        engine.ring()
        assert is_readable(adapter)
        with pytest.raises(kind):
            engine.wait(lambda: False, 1.0) if waits else engine.progress()
        assert is_readable(adapter)


@pytest.mark.parametrize("kind", KINDS)
def test_no_exception_of_a_handler_is_taken_for_a_failure_of_a_descriptor(
    kind: type[BaseException],
) -> None:
    def ring_and_drain() -> None:
        nonlocal raised
        raised = True
        count.add()
        count.drain()
        doorbell.drain()
        raised = False

    count, other = EventCount(), EventCount()
    doorbell = Doorbell.of(other.fileno)
    doorbell.begin("another process")
    doorbell.drain()
    at, more = 0, True
    while more:
        raised = False
        more = interrupted(at, ring_and_drain, WITHIN, kind)
        assert raised is more, f"interrupted at place {at}"
        at += 1
    assert at > 4
    count.close()
    doorbell._fd = -1
    other.close()


# -- what the broker says --


def raising(function: Callable[..., Any], times: int) -> Callable[..., Any]:
    """Return the function, at whose beginning a handler raises so many times."""
    left = times

    def call(*arguments: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            raise Alarm
        return function(*arguments)

    return call


@pytest.mark.parametrize("again", [0, 1, 3])
@pytest.mark.parametrize("step", ["meet", "add_segment"])
def test_an_introduction_that_alarms_interrupt_is_repeated(
    sides: Sides, step: str, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alarms may come so soon after each other that one interrupts what the last one has begun."""
    engine = sides.passive.engine
    sides.active.adapter.add_segment(1)
    monkeypatch.setattr(engine._peers, step, raising(getattr(engine._peers, step), 1))
    monkeypatch.setattr(engine, "_miss", raising(engine._miss, again))
    with suppress(Alarm):
        sides.connect()
        sides.request()
    with suppress(Alarm):
        engine.progress()
    engine.progress()
    sides.accept()
    assert 1 in engine.peer_adapter(sides.active.adapter.uid).segments


def test_a_new_doorbell_is_not_an_introduction(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker introduces a process anew, without segments, to renew a doorbell."""
    engine = sides.passive.engine
    events = engine.client.events

    def with_another() -> list[Any]:
        found: list[Any] = []
        for event, fds in events():
            if event["ev"] == "peer" and not again:
                again.append((event, [os.dup(fd) for fd in fds]))
            if event["ev"] == "segment" and len(again) == 1:
                os.close(fds.pop())
                again.append(None)
                found += [({**event, "fds_lost": True}, fds), again[0]]
            else:
                found.append((event, fds))
        return found

    again: list[Any] = []
    monkeypatch.setattr(engine.client, "events", with_another)
    sides.active.adapter.add_segment(1)
    sides.offer()
    assert len(again) == 2
    sides.accept()
    assert 1 in engine.peer_adapter(sides.active.adapter.uid).segments


def test_an_introduction_that_the_broker_cannot_repeat_is_missed(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sides.passive.engine
    sides.active.adapter.add_segment(1)
    with monkeypatch.context() as patch:
        patch.setattr(engine._peers, "meet", raising(engine._peers.meet, 1))
        with suppress(Alarm):
            sides.offer()

    def no_channel() -> None:
        raise OSError("none is left")

    with monkeypatch.context() as patch:
        patch.setattr(sides.world.broker.rendezvous.connections, "_channel", no_channel)
        with pytest.raises(NdError, match="ulimit") as caught:
            sides.accept()
        assert caught.value.status is Status.INSUFFICIENT_RESOURCES
    sides.accept()
    assert 1 in engine.peer_adapter(sides.active.adapter.uid).segments


GONE = {"ev": "adapter_gone", "adapter": "0" * 32}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (0, (GONE, [])),
        (1, (b'{"ev":"adapter_gone","adapter":"%s"}' % (b"0" * 32), [], 0, None)),
        (2, (GONE, [])),
    ],
    ids=["sorted in part", "read", "taken"],
)
def test_messages_of_the_broker_that_no_descriptor_shows_are_sorted(where: int, said: Any) -> None:
    """An exchange that the handler of a signal has ended may have read and not announced them."""
    with shmnd.open_adapter() as adapter:
        engine = adapter._engine
        engine.progress()
        engine._unsorted[where].append(said)
        assert not select.select([engine.client.fileno()], [], [], 0)[0]
        engine.progress()
        assert not any(map(len, engine._unsorted))
        engine._unsorted[where].append(said)
        engine.wait(lambda: False, 0.001)
        assert not any(map(len, engine._unsorted)), "before it sleeps"
