# SPDX-License-Identifier: Apache-2.0
"""INDEndpoint: Bind and Invalidate."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import shmnd.nd1 as nd
from nd1.endpoint.endpoint_kit import FEW, READ, done, target
from nd1.ends import End, Pair
from shmnd import Status
from shmnd.status import error
from spi.harness import WAIT, nd_error


# -- Bind and Invalidate --
def test_bind_success_gives_a_descriptor_that_is_valid_at_once(connected: Pair) -> None:
    """It travels in the next Send, before the Bind was reaped."""
    active, passive = connected.active, connected.passive
    memory, sink = active.memory(100), passive.memory(100)
    memory.put(b"0123456789", 50)
    window = active.adapter.create_memory_window()
    told = nd.Result()
    passive.endpoint.receive(told, sink.sge())
    descriptor = active.endpoint.bind(
        nd.Result(), memory.handle, window, memory.address + 50, 10, READ
    )
    active.endpoint.send(nd.Result(), nd.Sge(descriptor.pack(), 20, None))
    assert passive.reap() == [told]
    seen = nd.MwDescriptor.unpack(sink.get(20))
    assert seen == descriptor
    assert sink.get(20) == (
        (memory.address + 50).to_bytes(8, "big") + (10).to_bytes(8, "big")
    ) + descriptor.token.to_bytes(4, "big")
    result = done(passive, passive.endpoint.read, sink.sge(20, 4), seen, 3)
    assert (result.status, result.bytes_transferred) == (Status.SUCCESS, 4)
    assert sink.get(4, 20) == b"3456"
    window.close()


def test_bindings_that_are_over_take_no_memory(connected: Pair) -> None:
    """Those of a window that reports have a place in the inbound queue while they last."""
    end, memory = connected.passive, connected.passive.memory(16)
    window = end.adapter.create_memory_window(nd.Result())

    def bind_and_invalidate(times: int) -> int:
        for _ in range(times):
            done(end, end.endpoint.bind, memory.handle, window, memory.address, 16, READ)
            done(end, end.endpoint.invalidate, window)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = bind_and_invalidate(20)
        grown = bind_and_invalidate(2000) - before
        assert grown < 2000 * 100, "a place takes 128 bytes and more"
    finally:
        tracemalloc.stop()
    window.close()


class _Full:
    """A registry without room for a window."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def bind(self, *_: Any) -> int:
        raise error(Status.INSUFFICIENT_RESOURCES, "QueuePair.bind", "no entry is free")


def test_bindings_that_fail_take_no_memory(
    connected: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place in the inbound queue is free again."""
    end, memory = connected.passive, connected.passive.memory(16)
    window = end.adapter.create_memory_window(nd.Result())
    arguments = nd.Result(), memory.handle, window, memory.address, 16, READ

    def fail(times: int) -> int:
        for _ in range(times):
            with nd_error(Status.INSUFFICIENT_RESOURCES):
                end.endpoint.bind(*arguments)
        gc.collect()  # the errors that were caught are cycles
        return tracemalloc.get_traced_memory()[0]

    core = end.adapter._core
    with monkeypatch.context() as patch:
        patch.setattr(core, "_registry", _Full(core._registry))
        tracemalloc.start()
        try:
            before = fail(20)
            grown = fail(1000) - before
            assert grown < 1000 * 100, "a place takes 128 bytes and more"
        finally:
            tracemalloc.stop()
    end.endpoint.bind(*arguments)
    assert len(end.reap()) == 1, "the endpoint and the window are usable"


def test_bind_completes_success_anew_after_invalidate(connected: Pair) -> None:
    memory, window, first = target(connected)
    end = connected.passive
    assert done(end, end.endpoint.invalidate, window).status is Status.SUCCESS
    again = nd.Result()
    second = end.endpoint.bind(again, memory.handle, window, memory.address, 16, READ)
    assert end.reap() == [again]
    assert (again.status, again.bytes_transferred) == (Status.SUCCESS, 0)
    assert second.token != first.token


def test_bind_completes_invalid_request_when_it_is_bound(connected: Pair) -> None:
    memory, window, _ = target(connected)
    end = connected.passive
    result = nd.Result()
    end.endpoint.bind(result, memory.handle, window, memory.address, 8, READ)
    assert end.reap() == [result]
    assert result.status is Status.INVALID_REQUEST


def test_bind_completes_canceled_when_the_connection_is_over(connected: Pair) -> None:
    end = connected.active
    memory = end.memory(8)
    connected.hang_up(connected.passive)
    result = nd.Result()
    with end.adapter.create_memory_window() as window:
        end.endpoint.bind(result, memory.handle, window, memory.address, 8, READ)
        assert end.reap() == [result]
    assert result.status is Status.CANCELED
    end.adapter.deregister_memory(memory.handle).result(WAIT)


def bad_bind(pair: Pair, parameter: int, *, offset: int = 0, **changes: Any) -> None:
    end = pair.active
    memory = end.memory(64)
    window = end.adapter.create_memory_window()
    values: dict[str, Any] = {
        "memory_handle": memory.handle,
        "memory_window": window,
        "address": memory.address + offset,
        "length": 8,
        "flags": READ,
    } | changes
    with nd_error(Status[f"INVALID_PARAMETER_{parameter}"], match="bind"):
        end.endpoint.bind(nd.Result(), **values)
    window.close()


def test_bind_invalid_parameter_2_with_a_bad_handle(connected: Pair) -> None:
    dead = connected.active.memory(8).handle
    connected.active.adapter.deregister_memory(dead).result(WAIT)
    for handle in (0, None, dead, connected.passive.memory(8).handle ^ 1):
        bad_bind(connected, 2, memory_handle=handle)


def test_bind_invalid_parameter_3_with_a_bad_window(connected: Pair) -> None:
    with connected.passive.adapter.create_memory_window() as foreign:
        bad_bind(connected, 3, memory_window=foreign)
    bad_bind(connected, 3, memory_window=None)


def test_bind_invalid_parameter_4_when_it_begins_outside(connected: Pair) -> None:
    bad_bind(connected, 4, offset=-1)
    bad_bind(connected, 4, offset=65)


def test_bind_invalid_parameter_5_when_it_ends_outside(connected: Pair) -> None:
    bad_bind(connected, 5, offset=60)
    bad_bind(connected, 5, length=1 << 65)


def test_bind_invalid_parameter_6_without_a_right_or_with_other_flags(connected: Pair) -> None:
    for flags in (0, 0x1, 0x4 | READ, 0x20 | READ):
        bad_bind(connected, 6, flags=flags)


def test_bind_connection_invalid_before_the_connection(end: End) -> None:
    memory = end.memory(8)
    with end.adapter.create_memory_window() as window, nd_error(Status.CONNECTION_INVALID):
        end.endpoint.bind(nd.Result(), memory.handle, window, memory.address, 8, READ)


def test_bind_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(rnr_timeout=120.0, **FEW).connect()
    end = pair.active
    memory = end.memory(8)
    for _ in range(2):
        end.endpoint.send(nd.Result(), None)
    with end.adapter.create_memory_window() as window:
        with nd_error(Status.NO_MORE_ENTRIES):
            end.endpoint.bind(nd.Result(), memory.handle, window, memory.address, 8, READ)
        with nd_error(Status.NO_MORE_ENTRIES):
            end.endpoint.invalidate(nd.Result(), window)


def test_invalidate_completes_success_and_is_final(connected: Pair) -> None:
    memory, window, descriptor = target(connected)
    passive, active = connected.passive, connected.active
    result = done(passive, passive.endpoint.invalidate, window)
    assert (result.status, result.bytes_transferred) == (Status.SUCCESS, 0)
    before = memory.get(256)
    source = active.memory(8)
    refused = done(active, active.endpoint.write, source.sge(), descriptor, 0)
    assert refused.status is Status.REMOTE_ERROR
    assert memory.get(256) == before


def test_invalidate_success_of_a_silent_one(connected: Pair) -> None:
    _, window, _ = target(connected)
    connected.passive.endpoint.invalidate(nd.Result(), window, 0x1)
    assert connected.passive.cq.get_results() == []


def test_invalidate_completes_invalidation_error_when_it_is_not_bound(connected: Pair) -> None:
    end = connected.active
    with end.adapter.create_memory_window() as window:
        result = done(end, end.endpoint.invalidate, window)
    assert result.status is Status.INVALIDATION_ERROR
    assert result.status is Status.INVALID_REQUEST, "version 1 cannot tell the two"


def test_invalidate_completes_canceled_when_the_connection_is_over(connected: Pair) -> None:
    _, window, _ = target(connected)
    connected.hang_up(connected.active)
    result = done(connected.passive, connected.passive.endpoint.invalidate, window)
    assert result.status is Status.CANCELED


def test_invalidate_connection_invalid_before_the_connection(end: End) -> None:
    with end.adapter.create_memory_window() as window, nd_error(Status.CONNECTION_INVALID):
        end.endpoint.invalidate(nd.Result(), window)


def test_invalidate_no_more_entries_when_the_queue_is_full(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(rnr_timeout=120.0, **FEW).connect()
    for _ in range(2):
        pair.active.endpoint.send(nd.Result(), None)
    with pair.active.adapter.create_memory_window() as window, nd_error(Status.NO_MORE_ENTRIES):
        pair.active.endpoint.invalidate(nd.Result(), window)


def test_invalidate_invalid_parameter_2_with_a_bad_window(connected: Pair) -> None:
    with connected.passive.adapter.create_memory_window() as foreign:
        for window in (foreign, None):
            with nd_error(Status.INVALID_PARAMETER_2):
                connected.active.endpoint.invalidate(nd.Result(), window)  # type: ignore[arg-type]


def test_invalidate_invalid_parameter_3_with_other_flags(connected: Pair) -> None:
    with connected.active.adapter.create_memory_window() as window:
        for flags in (0x4, READ, 0x20):
            with nd_error(Status.INVALID_PARAMETER_3):
                connected.active.endpoint.invalidate(nd.Result(), window, flags)
