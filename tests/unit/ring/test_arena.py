# SPDX-License-Identifier: Apache-2.0
"""What an arena gives when other threads come between, and after it has given very much."""

import functools
import gc
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest

import shmnd
from shmnd import MrFlag, NdError, Status
from shmnd.ring.shared_memory.arena import Arena


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(lambda seg, segment, call: None, lambda seg: None)
    yield made
    made.close()


def _range(block: Any) -> range:
    memory = numpy.frombuffer(memoryview(block), numpy.uint8)
    return range(memory.ctypes.data, memory.ctypes.data + memory.nbytes)


@pytest.mark.parametrize("freed", [False, True], ids=["next piece", "freed piece"])
def test_an_arena_that_another_thread_closed_raises(arena: Arena, freed: bool) -> None:
    block = arena.allocate(64)
    if freed:
        del block
    arena.close()
    with pytest.raises(NdError, match="closed meanwhile") as caught:
        arena.allocate(64)
    assert caught.value.status is Status.DEVICE_REMOVED


def test_a_closed_arena_locates_nothing(arena: Arena) -> None:
    memory = _range(arena.allocate(64))
    assert arena.locate(memory.start, 64) is not None
    arena.close()
    assert arena.locate(memory.start, 64) is None


def test_an_allocation_within_a_collection_shares_no_bytes(arena: Arena) -> None:
    blocks = [arena.allocate(64)]
    within: list[Any] = []

    def collecting(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and len(within) < 8:
            within.append(arena.allocate(64))

    thresholds = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(1)
    try:
        blocks += [arena.allocate(64) for _ in range(64)]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(collecting)
    assert within
    starts = sorted(_range(block).start for block in blocks + within)
    assert all(after - before >= 64 for before, after in itertools.pairwise(starts))


def test_memory_is_used_whatever_the_numbers_of_its_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each large block takes a number, also after it was freed: a program that works for hours has
    used up millions of them when a peer connects.
    """
    monkeypatch.setattr("shmnd.adapter.Arena", functools.partial(Arena, first=(1 << 29) - 8))
    with shmnd.listen() as server, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(server.accept, 10)
        with shmnd.connect(server.address) as here, accepted.result() as there:
            memory = there.adapter.allocate(1 << 20)
            memory[:] = 7
            region = there.adapter.create_memory_region()
            region.register(memory, MrFlag.ALLOW_REMOTE_READ).result(10)
            here.qp.read(here.region.sge(), region.address, region.remote_token)
            here.cq.wait_one(10).raise_if_failed()
            assert (here.memory == 7).all()
            there.send_bytes(bytes(50000))
            assert here.recv_bytes(10) == bytes(50000)
            allocate = functools.partial(there.adapter.allocate, 1 << 20)
            with pytest.raises(NdError, match="segments in its life") as caught:
                [allocate() for _ in range(8)]
            assert caught.value.status is Status.INSUFFICIENT_RESOURCES
