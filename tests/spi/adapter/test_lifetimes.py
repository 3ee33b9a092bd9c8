# SPDX-License-Identifier: Apache-2.0
"""What a pending operation, a request or a connection needs lives as long as it does, no longer.

All ends are in this process: the question is when an object of it goes.
"""

import gc
import weakref
from typing import Any

import pytest

import shmnd
from shmnd import OpFlag, Status
from spi.harness import WAIT, final, statuses, wait_until
from spi.pair import Pair
from spi.remote import Ends


@pytest.fixture
def pair(ends: Ends) -> Pair:
    return ends.pair("one")


def drop(end: Any, name: str) -> "weakref.ref[Any]":
    """Have the end hold an object no longer."""
    return weakref.ref(end.__dict__.pop(name))


def test_an_accept_keeps_the_queue_pair_it_was_given(pair: Pair) -> None:
    pair.offer()
    passive = pair.passive
    accepting = passive.connector.accept(passive._make_qp())
    pair.connecting.result(WAIT)
    pair.active.connector.complete_connect().result(WAIT)
    assert final(accepting) is Status.SUCCESS


def test_a_connect_keeps_the_queue_pair_it_was_given(pair: Pair) -> None:
    pair.listen()
    active = pair.active
    connecting = active.connector.connect(active._make_qp(), pair.address)
    pair.offered()
    pair.passive.connector.accept(pair.passive.qp)
    assert final(connecting) is Status.SUCCESS


def test_a_request_keeps_the_connector_it_was_given(pair: Pair) -> None:
    pair.listen()
    asked = pair.passive.listener.get_connection_request(pair.passive._make_connector())
    pair.request()
    assert final(asked) is Status.SUCCESS


def test_a_pending_operation_keeps_nothing_once_it_is_over(pair: Pair) -> None:
    pair.offer()
    gone = weakref.ref(qp := pair.passive._make_qp())
    accepting = pair.passive.connector.accept(qp)
    del qp
    assert gone() is not None
    pair.passive.connector.cancel_overlapped_requests()
    assert accepting.status is Status.CANCELED
    assert gone() is None


@pytest.mark.parametrize("cancel", [False, True])
def test_a_request_keeps_its_connector_no_longer_than_it_waits(pair: Pair, cancel: bool) -> None:
    pair.listen()
    listener = pair.passive.listener
    gone = weakref.ref(connector := pair.passive._make_connector())
    asked = listener.get_connection_request(connector)
    del connector
    assert gone() is not None
    if cancel:
        listener.cancel_overlapped_requests()
    else:
        listener.close()
    assert asked.status is Status.CANCELED
    assert gone() is None


@pytest.mark.parametrize("side", ["active", "passive"])
def test_a_connection_lasts_as_long_as_its_queue_pair(pair: Pair, side: str) -> None:
    end = getattr(pair.connect(), side)
    other = pair.other(end)
    pair.dispose()
    ended = other.connector.notify_disconnect()
    connector = drop(end, "connector")
    gc.collect()
    assert connector() is not None
    sink = other.memory(8)
    other.qp.receive(sink.sge())
    end.qp.send(end.memory(8).sge())
    assert statuses(other.reap()) == [Status.SUCCESS]
    assert statuses(end.reap()) == [Status.SUCCESS]
    assert ended.status is Status.PENDING
    queue_pair = drop(end, "qp")
    assert queue_pair() is None, "at once, without a collection"
    assert connector() is None
    assert final(ended) is Status.SUCCESS


@pytest.mark.parametrize("how", ["disconnect", "close"])
def test_a_connection_that_was_ended_keeps_no_connector(pair: Pair, how: str) -> None:
    end = pair.connect().active
    pair.dispose()
    ended = getattr(end.connector, how)()
    if ended is not None:
        ended.result(WAIT)
    assert drop(end, "connector")() is None


def test_an_accept_that_is_dropped_with_its_connector_keeps_nothing(pair: Pair) -> None:
    pair.offer()
    passive = pair.passive
    passive.connector.accept(passive.qp)
    gone = drop(passive, "connector"), drop(passive, "qp")
    assert [ref() for ref in gone] == [None, None], "at once, without a collection"


def test_a_circle_through_a_connection_is_collected(pair: Pair) -> None:
    """The queue pair keeps the connector, which a program has let refer to the queue pair."""
    end = pair.connect().active
    ended = pair.passive.connector.notify_disconnect()
    pair.dispose()
    end.connector.owner = [end.qp, end.connector]
    gone = drop(end, "connector"), drop(end, "qp")
    assert gone[0]() is not None
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    assert final(ended) is Status.SUCCESS


def bound(pair: Pair, flags: int = 0) -> tuple[int, int, "weakref.ref[Any]"]:
    """Bind a window that is dropped at once; give address and token."""
    end = pair.passive
    memory = end.memory(64)
    window = end.adapter.create_memory_window()
    end.qp.bind(memory.mr, window, memory.address, 64, "bound", flags=OpFlag.ALLOW_READ | flags)
    return memory.address, window.remote_token, weakref.ref(window)


def test_a_bind_keeps_its_window_until_its_result_is_taken(pair: Pair) -> None:
    pair.connect()
    address, token, window = bound(pair)
    assert window() is not None
    pair.active.qp.read(pair.active.memory(64).sge(), address, token)
    assert statuses(pair.active.reap()) == [Status.SUCCESS]
    (result,) = pair.passive.reap()
    assert (result.status, result.request_context) == (Status.SUCCESS, "bound")
    assert window() is None


def test_a_silent_bind_keeps_its_window_while_it_is_outstanding(ends: Ends) -> None:
    pair = ends.pair("one", rnr_timeout=120.0).connect()
    pair.passive.qp.send(None, "waits for a receive")
    _, _, window = bound(pair, OpFlag.SILENT_SUCCESS)
    assert window() is not None
    pair.active.qp.receive(None)
    assert statuses(pair.active.reap()) == [Status.SUCCESS]
    assert statuses(pair.passive.reap()) == [Status.SUCCESS]
    pair.passive.cq.get_results()
    wait_until(lambda: not pair.passive.cq.get_results() and window() is None, "released")


def test_an_invalidate_keeps_its_window(pair: Pair) -> None:
    pair.connect()
    end, memory = pair.passive, pair.passive.memory(64)
    window = end.adapter.create_memory_window()
    flags = OpFlag.ALLOW_READ
    end.qp.bind(memory.mr, window, memory.address, 64, "bound", flags=flags)
    end.qp.invalidate(window, "taken back")
    gone = weakref.ref(window)
    del window
    results = end.reap(2)
    assert [result.request_context for result in results] == ["bound", "taken back"]
    assert gone() is None


_VISITED = 75
"""Objects of both ends of a connection that each collection of garbage visits."""


def test_a_connection_keeps_few_objects_for_collections_to_visit() -> None:
    """A program with thousands of connections spends a part of each on collections of garbage."""
    with shmnd.open_adapter("127.0.0.1") as adapter:
        queue = adapter.create_completion_queue(64)
        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        kept = [_connected(adapter, queue, listener) for _ in range(5)]
        gc.collect()
        before = len(gc.get_objects())
        kept += [_connected(adapter, queue, listener) for _ in range(20)]
        gc.collect()
        assert len(gc.get_objects()) - before < 20 * _VISITED
        del kept


def _connected(adapter: Any, queue: Any, listener: Any) -> list[Any]:
    ends = [(adapter.create_connector(), adapter.create_queue_pair(queue, queue)) for _ in range(2)]
    (active, one), (passive, other) = ends
    connecting = active.connect(one, listener.get_local_address())
    listener.get_connection_request(passive).result(WAIT)
    accepting = passive.accept(other)
    connecting.result(WAIT)
    active.complete_connect().result(WAIT)
    accepting.result(WAIT)
    return [*ends, connecting, accepting]
