# SPDX-License-Identifier: Apache-2.0
"""Calls of which one allocation of memory fails: the first, the second, and so on.

A program of its own, since what it looks for ends the process: `out_of_memory.py CASE`. It runs
with the debugging allocators of CPython, which find writes behind the end of a block.
"""

import _testcapi
import contextlib
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import shmnd
import shmnd.nd1 as nd
from shmnd.ring.shared_memory.arena import Arena

WAIT = 10.0
ALLOCATIONS = 60
"""More than a call makes that takes results."""
CASES: dict[str, Callable[[], None]] = {}


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


class Context:
    """The context of a request; there are as many as have not ended."""

    living = 0

    def __init__(self) -> None:
        Context.living += 1

    def __del__(self) -> None:
        Context.living -= 1


@contextlib.contextmanager
def failing(allocation: int, *, alone: bool = True) -> Iterator[None]:
    """Have an allocation of the block fail, counted from 0, and let the call raise what it will.

    All later ones of the block fail as well if it is not `alone`.
    """
    _testcapi.set_nomemory(allocation, allocation + 1 if alone else 0)
    try:
        yield
    except Exception:
        pass
    finally:
        _testcapi.remove_mem_hooks()


@case
def results() -> None:
    """A completion whose result has no memory is taken by a later call."""
    with shmnd.open_adapter() as adapter:
        queue = adapter.create_completion_queue(16)
        pair = adapter.create_queue_pair(queue, queue)
        ways: dict[str, Callable[[], Any]] = {
            "three": lambda: queue.get_results(3),
            "one of a list": lambda: queue.get_results(1),
            "one of a wait": lambda: queue.wait(1, 0),
            "one alone": lambda: queue.wait_one(0),
        }
        for (name, take), alone in itertools.product(ways.items(), (True, False)):
            for allocation in range(ALLOCATIONS):
                posted = [Context() for _ in range(5)]
                for each in posted:
                    pair.receive(None, each)
                pair.flush()
                given: Any = []
                with failing(allocation, alone=alone):
                    given = take()
                taken = given if isinstance(given, list) else [given]
                while more := queue.get_results():
                    taken += more
                got = [posted.index(result.request_context) for result in taken]
                assert got == [*range(5)], (name, alone, allocation, got)
                del posted, given, taken, more, each
                gc.collect()
                assert Context.living == 0, (name, alone, allocation)


@case
def results_of_version_1() -> None:
    adapter = nd.Provider().open_adapter("127.0.0.1")
    queue = adapter.create_completion_queue(16)
    endpoint = adapter.create_connector().create_endpoint(queue, queue, 8, 8, 1, 1)
    for allocation in range(ALLOCATIONS):
        posted = [nd.Result() for _ in range(5)]
        held = [sys.getrefcount(result) for result in posted]
        for result in posted:
            endpoint.receive(result, [])
        endpoint.flush()
        taken: list[Any] = []
        with failing(allocation):
            taken = queue.get_results(3)
        while more := queue.get_results(16):
            taken += more
        del result
        assert all(one is other for one, other in zip(taken, posted, strict=True)), allocation
        del taken, more
        assert [sys.getrefcount(result) for result in posted] == held, allocation
    adapter.close()


@case
def half_made_queues() -> None:
    """A queue of which no `__init__`, and not even all of `__new__`, has run can be dropped."""
    with shmnd.open_adapter() as adapter:
        for allocation in range(200):
            with failing(allocation):
                adapter.create_completion_queue(64)
            with failing(allocation):
                adapter.create_shared_receive_queue(64)


@case
def places_for_queue_pairs() -> None:
    """The lists of a queue's connections are as long as the queue takes them to be."""
    with shmnd.open_adapter() as adapter, shmnd.open_adapter() as other:
        far = other.create_completion_queue(256)
        listener = other.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        queue = adapter.create_completion_queue(256)
        pairs = [small(adapter, queue) for _ in range(8)]  # as many as there are places
        allocation = 0
        while len(pairs) == 8:
            with failing(allocation):
                pairs.append(small(adapter, queue))
            allocation += 1
        pairs += [small(adapter, queue) for _ in range(8)]
        for pair in pairs:
            connect(adapter, pair, listener, small(other, far))


@case
def blocks_of_an_arena() -> None:
    """Blocks return without an allocation, and those that are not made leave their places.

    None closes a descriptor that is not its own.
    """
    opened = descriptors()
    for nbytes in (100, 1 << 20):
        arena = Arena(lambda seg, segment, call: None, lambda seg: None, 3 << 20)
        first = arena.allocate(nbytes)
        address = first.address
        del first
        for allocation in range(ALLOCATIONS):
            block = arena.allocate(nbytes)
            _testcapi.set_nomemory(0, 0)  # every allocation fails
            del block
            _testcapi.remove_mem_hooks()
            with failing(allocation):
                block = arena.allocate(nbytes)
                del block
        if nbytes < 1 << 20:
            assert arena.allocate(nbytes).address == address, "it is the one place that there was"
        else:
            assert arena.segments() == []
            assert [arena.allocate(nbytes) for _ in range(3)], "there is room for three"
        arena.close()
        assert descriptors() == opened


@case
def blocks_with_segments_of_their_own() -> None:
    """Memory that cannot be had counts against no limit, and freed memory is free again.

    The numbers of the segments are above those of which Python keeps an object. How many segments
    were made before each failure varies, as a dictionary grows now and then.
    """
    three = 3 * 4096
    arena = Arena(lambda seg, segment, call: None, lambda seg: None, three, first=1000)
    for before in range(8):
        for allocation in range(ALLOCATIONS):
            for _ in range(before):
                arena.allocate(4096, alone=True)
            with failing(allocation):
                arena.allocate(4096, alone=True)
            assert arena.segments() == []
            assert [arena.allocate(4096, alone=True) for _ in range(3)], "there is room for three"
    arena.close()

    arena = Arena(lambda seg, segment, call: None, lambda seg: None, 40 * 4096)
    for _ in range(2):
        blocks = [arena.allocate(4096, alone=True) for _ in range(40)]
        freed = [block.address for block in blocks]
        while blocks:
            block = blocks.pop()
            _testcapi.set_nomemory(0, 0)
            del block
            _testcapi.remove_mem_hooks()
        assert arena.segments() == []
        assert not any(arena.locate(address, 1) for address in freed)
    block = arena.allocate(4096, alone=True)
    assert arena.locate(block.address, 4096) == (block.seg, 0, False)
    arena.close()


def descriptors() -> list[str]:
    return sorted(each.name for each in Path("/proc/self/fd").iterdir())


def small(adapter: Any, queue: Any) -> Any:
    return adapter.create_queue_pair(queue, queue, receive_depth=1, initiator_depth=1)


def connect(adapter: Any, pair: Any, listener: Any, partner: Any) -> None:
    connector, answering = adapter.create_connector(), partner._adapter.create_connector()
    connecting = connector.connect(pair, listener.get_local_address())
    listener.get_connection_request(answering).result(WAIT)
    accepting = answering.accept(partner)
    connecting.result(WAIT)
    connector.complete_connect().result(WAIT)
    accepting.result(WAIT)


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        CASES[name]()
        print(name, flush=True)
