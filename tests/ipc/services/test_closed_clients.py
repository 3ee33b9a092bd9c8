# SPDX-License-Identifier: Apache-2.0
"""What the requests of a client have after it was closed, and which call an error names."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shmnd import ipc

PATIENCE = 60.0


def awaited(make: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await make()

    return asyncio.run(main())


def test_an_answer_that_came_before_the_close_is_kept() -> None:
    with ipc.Server("s") as server:
        with ipc.Client("s") as client:
            pending = client.send("ask")
            server.receive(PATIENCE).respond("answer")
            assert pending.result(PATIENCE).value == "answer"
        assert pending.done()
        assert pending.result(0).value == "answer"
        assert awaited(lambda: pending).value == "answer"


def test_values_of_a_stream_that_came_before_the_close_are_read() -> None:
    with ipc.Server("s") as server:
        with ipc.Client("s") as client:
            values = client.stream("ask")
            request = server.receive(PATIENCE)
            for number in range(3):
                request._send_part(number, "test")
            client._take_answers()
        assert [next(values).value for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ipc.Closed, match=r"Client\.stream: the client is closed"):
            next(values)


def test_the_call_is_named_to_which_nothing_comes() -> None:
    client = ipc.Client("s")
    pending, values = client.send("ask"), client.stream("ask")
    client.close()

    async def next_value() -> Any:
        return await anext(values)

    calls: dict[str, Callable[[], Any]] = {
        "Pending.done": pending.done,
        "Pending.result": lambda: pending.result(PATIENCE),
        "Pending": lambda: awaited(lambda: pending),
        "Client.stream": lambda: next(values),
        "Client.call": lambda: client.call("ask", PATIENCE),
        "Client.acall": lambda: awaited(lambda: client.acall("ask", PATIENCE)),
    }
    for name, call in calls.items():
        with pytest.raises(ipc.Closed, match=f"^{name}: the client is closed"):
            call()
    with pytest.raises(ipc.Closed, match=r"^Client\.stream: the client is closed"):
        awaited(next_value)


def test_a_request_that_found_no_room_before_the_close() -> None:
    async def main() -> None:
        client = ipc.Client("s", buffer=1)
        client.send("first")
        pending = client.send("second")
        client.close()
        with pytest.raises(ipc.Closed, match="closed before there was room"):
            await pending

    asyncio.run(main())
