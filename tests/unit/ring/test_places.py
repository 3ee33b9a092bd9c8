# SPDX-License-Identifier: Apache-2.0
"""The places of a completion queue for queue pairs: each is given back, whatever ends its pair."""

import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import shmnd
from shmnd import Status

PLACES = 4096


@pytest.fixture
def adapter() -> Iterator[shmnd.Adapter]:
    with shmnd.open_adapter() as opened:
        yield opened


def pair(
    adapter: shmnd.Adapter, receive: shmnd.CompletionQueue, initiator: shmnd.CompletionQueue
) -> shmnd.QueuePair:
    return adapter.create_queue_pair(receive, initiator, receive_depth=1, initiator_depth=1)


@pytest.mark.slow
def test_a_full_queue_has_a_place_for_each_pair_that_is_closed(adapter: shmnd.Adapter) -> None:
    cq, other = (adapter.create_completion_queue(1) for _ in range(2))
    with ExitStack() as kept:
        pairs = [kept.enter_context(pair(adapter, cq, cq)) for _ in range(PLACES)]
        for receive, initiator in [(cq, cq), (cq, other), *[(other, cq)] * (PLACES + 1)]:
            with pytest.raises(MemoryError) as refused:
                pair(adapter, receive, initiator)
        assert isinstance(refused.value, shmnd.NdError)
        assert refused.value.status is Status.INSUFFICIENT_RESOURCES
        assert f"serves {PLACES} queue pairs at most" in str(refused.value)
        kept.enter_context(pair(adapter, other, other))  # those that failed have no place there
        for closed in pairs[:2]:
            closed.close()
        kept.enter_context(pair(adapter, cq, other))
        kept.enter_context(pair(adapter, other, cq))
        with pytest.raises(MemoryError):
            pair(adapter, cq, cq)


@pytest.mark.parametrize("queues", [1, 2])
def test_the_room_of_a_closed_pair_is_used_again(adapter: shmnd.Adapter, queues: int) -> None:
    receive = adapter.create_completion_queue(1)
    initiator = receive if queues == 1 else adapter.create_completion_queue(1)

    def make_and_close() -> None:
        adapter.create_queue_pair(
            receive, initiator, receive_depth=4000, initiator_depth=4000
        ).close()

    tracemalloc.start()
    try:
        make_and_close()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(8):
            make_and_close()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4000, "a ring of completions for thousands more"
