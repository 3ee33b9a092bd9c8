# SPDX-License-Identifier: Apache-2.0
"""What an arena gives when other threads come between: they close it, or allocate as well."""

import gc
import itertools
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from shmnd import NdError, Status
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
def test_an_arena_that_another_thread_closed_says_so(arena: Arena, freed: bool) -> None:
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
