# SPDX-License-Identifier: Apache-2.0
"""Loops over servers, connections and completion queues: what a handler raises ends none of them.

None loses a thing that it has taken, and each ends by its `close` or `aclose`.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shmnd
from interrupting import inside, interrupted
from processes.messages.kit import LIMIT, Pair


def taken(source: Any, how: str) -> Callable[[], Any]:
    """Return a function that takes the next thing of one loop."""
    if how == "for":
        return iter(source).__next__
    loop = aiter(source)

    async def next_one() -> Any:
        return await asyncio.wait_for(anext(loop), LIMIT)

    return lambda: asyncio.run(next_one())


@pytest.mark.parametrize("how", ["for", "async for"])
def test_a_loop_of_messages_continues_after_a_handler_and_has_each(pair: Pair, how: str) -> None:
    near, far = pair
    take = taken(near, how)
    for place in itertools.count():
        far.send_bytes(b"%d" % place, LIMIT)
        got: list[bytes] = []
        came = interrupted(place, lambda got=got: got.append(take()), inside(shmnd))
        assert (got or [take()]) == [b"%d" % place], f"interrupted at {place}"
        if not came:
            break
    assert place > 1
    far.close()
    for _ in range(2):
        with pytest.raises(StopIteration if how == "for" else StopAsyncIteration):
            take()


def test_a_loop_of_results_continues_after_a_handler_and_has_each() -> None:
    with shmnd.open_adapter() as adapter:
        queue = adapter.create_completion_queue(8)
        pair = adapter.create_queue_pair(queue, queue, receive_depth=4)
        take = taken(queue, "async for")
        for place in itertools.count():
            got: list[Any] = []
            pair.receive(None, context=place)
            pair.flush()
            came = interrupted(place, lambda got=got: got.append(take()), inside(shmnd))
            (result,) = got or [take()]
            assert result.request_context == place, f"interrupted at {place}"
            if not came:
                break
        assert place > 1
        queue.close()
        with pytest.raises(shmnd.NdError):
            take()


@pytest.mark.parametrize("how", ["for", "async for"])
def test_a_loop_of_connections_continues_after_a_handler(how: str) -> None:
    with shmnd.listen() as server:
        take = taken(server, how)
        assert interrupted(1, take, inside(shmnd))
        clients: list[shmnd.Connection] = []

        def connect() -> None:
            clients.append(shmnd.connect(server.address, timeout=LIMIT))

        connecting = threading.Thread(target=connect)
        connecting.start()
        with take() as connection:
            connecting.join(LIMIT)
            connection.send_bytes(b"here", LIMIT)
            assert clients[0].recv_bytes(LIMIT) == b"here"
        clients[0].close()
        server.close()
        for _ in range(2):
            with pytest.raises(StopIteration if how == "for" else StopAsyncIteration):
                take()


def ends(source: Any) -> None:
    loop: Any = iter(source)
    loop.close()
    assert list(loop) == []


async def ends_in_loop(source: Any) -> None:
    loop: Any = aiter(source)
    await loop.aclose()
    assert [each async for each in loop] == []


def test_each_loop_has_close_and_leaves_its_object_open(pair: Pair) -> None:
    near, far = pair
    with shmnd.listen() as server:
        for source in (near, server):
            ends(source)
        for source in (near, server, near.cq):
            asyncio.run(ends_in_loop(source))
        assert not server.closed
    far.send_bytes(b"still open", LIMIT)
    assert near.recv_bytes(LIMIT) == b"still open"
