# SPDX-License-Identifier: Apache-2.0
"""What continues by itself: silent successes need no poll, and take no place in a queue."""

import gc
import weakref
from collections.abc import Callable

import pytest

from shmnd import CqNotify, OpFlag, Status
from spi.harness import REMOTE, WAIT, Buffer, End, contexts, statuses
from spi.pair import Pair

MakePair = Callable[..., Pair]

SILENT = OpFlag.SILENT_SUCCESS
DEPTH = 16
TURNS = 20 * DEPTH
"""Many times what the queue pair holds and what its completion queue does."""


class Context:
    """Something that can be seen to be given back."""


@pytest.fixture
def narrow(make_pair: MakePair) -> Pair:
    """A connection whose queues hold few, at the end that posts."""
    return make_pair(active={"depth": DEPTH, "cq_depth": DEPTH, "inline": 64}).connect()


def source_of(end: End, way: str) -> tuple[Buffer, int, int]:
    """A source and the length and flags that make a request go a certain way."""
    length = {"long": 32 << 10, "inline": 16, "private": 16, "short": 16}[way]
    source = end.memory(length, private=way == "private")
    return source, length, OpFlag.INLINE if way == "inline" else 0


@pytest.mark.parametrize("way", ["short", "long", "inline", "private"])
def test_silent_writes_need_no_poll(narrow: Pair, way: str) -> None:
    source, length, flags = source_of(narrow.active, way)
    sink = narrow.passive.memory(length, REMOTE)
    seen = []
    for number in range(TURNS):
        source.put(bytes([number % 251 + 1]) * length)
        context = Context()
        seen.append(weakref.ref(context))
        narrow.active.qp.write(
            source.sge(), sink.address, sink.remote_token, context, flags=flags | SILENT
        )
        assert sink.get(1) == bytes([number % 251 + 1])
    del context
    assert sum(reference() is not None for reference in seen) == 0
    assert narrow.active.leftover() == []
    narrow.exchange()


@pytest.mark.parametrize("length", [16, 600, 5000, 100_000])
def test_silent_sends_need_no_poll(narrow: Pair, length: int) -> None:
    source, sink = narrow.active.memory(length), narrow.passive.memory(length)
    for _ in range(TURNS // DEPTH):
        for number in range(DEPTH):
            narrow.passive.qp.receive(sink.sge(), number)
        for _ in range(DEPTH):
            narrow.active.qp.send(source.sge(), "silent", flags=SILENT)
        assert len(narrow.passive.reap(DEPTH)) == DEPTH
    assert narrow.active.leftover() == []


def test_silent_windows_need_no_poll(narrow: Pair) -> None:
    end = narrow.active
    buffer = end.memory(64, REMOTE)
    window = end.adapter.create_memory_window()
    for _ in range(TURNS):
        end.qp.bind(
            buffer.mr, window, buffer.address, 64, "silent", flags=SILENT | OpFlag.ALLOW_READ
        )
        end.qp.invalidate(window, "silent", flags=SILENT)
    assert end.leftover() == []


@pytest.mark.active_end_here
def test_silent_writes_leave_a_notify_its_message(narrow: Pair) -> None:
    end = narrow.active
    source, received = end.memory(16), end.memory(16)
    sink, answer = narrow.passive.memory(16, REMOTE), narrow.passive.memory(16)
    end.qp.receive(received.sge(), "received")
    for _ in range(5 * DEPTH):
        end.qp.write(
            source.sge(), sink.address, sink.remote_token, "silent", flags=SILENT | OpFlag.INLINE
        )
    notice = end.cq.notify(CqNotify.ANY)
    narrow.passive.qp.send(answer.sge(), "sent")
    notice.result(timeout=WAIT)
    assert contexts(end.reap()) == ["received"]


def test_a_silent_request_that_fails_gives_its_context_once(narrow: Pair) -> None:
    end = narrow.active
    source = end.memory(32 << 10)
    for _ in range(3):
        end.qp.write(source.sge(), 1, 1, "failed", flags=SILENT)
    failed = end.reap(3)
    assert contexts(failed) == ["failed"] * 3
    assert statuses(failed)[0] == Status.ACCESS_VIOLATION


def test_silent_requests_that_wait_are_given_back_when_their_end_goes(make_pair: MakePair) -> None:
    pair = make_pair(active={"depth": DEPTH}, rnr_timeout=120.0).connect()
    context = Context()
    seen = weakref.ref(context)
    for _ in range(DEPTH):
        pair.active.qp.send(None, context, flags=SILENT)
    del context
    for number in range(DEPTH):
        pair.passive.qp.receive(None, number)
    assert len(pair.reap(pair.passive, DEPTH)) == DEPTH
    pair.hang_up(pair.passive)
    pair.active.leftover()
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("private", [False, True], ids=["shared", "private"])
@pytest.mark.parametrize("length", [8, 600, 4000, 100_000])
def test_sends_that_wait_fail_when_their_memory_is_deregistered(
    make_pair: MakePair, length: int, private: bool
) -> None:
    pair = make_pair(rnr_timeout=120.0).connect()
    source, sink = pair.active.memory(length, private=private), pair.passive.memory(length)
    other = pair.active.memory(8)
    pair.active.qp.send(other.sge(), "of other memory")
    pair.active.qp.send(source.sge(), "waits")
    pair.active.qp.send(other.sge(), "behind")
    assert pair.active.leftover() == []
    pair.settle(source.mr.deregister(), pair.active)
    for number in range(3):
        pair.passive.qp.receive(sink.sge(), number)
    ended = pair.reap(pair.active, 3)
    assert contexts(ended) == ["of other memory", "waits", "behind"]
    assert statuses(ended) == [Status.SUCCESS, Status.ACCESS_VIOLATION, Status.CANCELED]
    received = pair.reap(pair.passive, 3)
    assert statuses(received) == [Status.SUCCESS, Status.CANCELED, Status.CANCELED]
