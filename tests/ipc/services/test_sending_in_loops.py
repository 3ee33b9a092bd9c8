# SPDX-License-Identifier: Apache-2.0
"""Requests that tasks send while there is no room: the event loop is not stopped."""

import asyncio
import pickle
import queue
import threading
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shmnd import ipc

PATIENCE = 20.0
COUNT = 40
"""Requests: five times as many as there is room for."""


@pytest.fixture
def name() -> str:
    return f"service-{uuid.uuid4().hex}"


async def handler(request: Any) -> Any:
    async def values() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    return values() if request.value == "stream" else request.value


def test_client_and_server_in_one_loop(name: str) -> None:
    async def ends() -> None:
        with ipc.Server(name) as server, ipc.Client(name) as client:
            serving = asyncio.create_task(server.serve(handler))
            pending = [client.send(number) for number in range(COUNT)]
            streams = [client.stream("stream") for _ in range(COUNT)]
            assert [(await each).value for each in pending] == list(range(COUNT))
            for stream in streams:
                assert [each.value async for each in stream] == [0, 1, 2]
            server.close()
            await serving

    asyncio.run(asyncio.wait_for(ends(), PATIENCE))


def test_requests_stay_in_order_and_as_they_were(name: str) -> None:
    async def ends() -> None:
        with ipc.Client(name) as client, ipc.Server(name) as server:
            value = [0]
            pending = []
            for number in range(COUNT):
                value[0] = number
                pending.append(client.send(value))
            with pytest.raises(
                (AttributeError, pickle.PicklingError), match=r"pickle|local object"
            ):
                client.send(lambda: None)
            closed = client.stream("never")
            closed.close()
            for number in range(COUNT):
                request = await server.areceive(PATIENCE)
                assert request.value == [number]
                request.respond(number)
            assert [(await each).value for each in pending] == list(range(COUNT))
            with pytest.raises(TimeoutError):  # the stream that was closed before
                await server.areceive(0.1)

    asyncio.run(asyncio.wait_for(ends(), PATIENCE))


def test_a_result_in_the_thread_of_the_loop(name: str) -> None:
    """The task that would send it does not run while the thread waits."""

    async def ends() -> None:
        with ipc.Client(name) as client:
            last = [client.send(number) for number in range(COUNT)][-1]
            with pytest.raises(TimeoutError):
                last.result(0.05)
            with ipc.Server(name) as server:
                thread = asyncio.to_thread(server.serve, lambda request: request.value)
                serving = asyncio.create_task(thread)
                await asyncio.sleep(0)
                assert last.result(PATIENCE).value == COUNT - 1
                server.close()
                await serving

    asyncio.run(asyncio.wait_for(ends(), PATIENCE))


def test_requests_that_are_never_sent_end(name: str) -> None:
    async def left() -> Any:
        client = ipc.Client(name)
        return client, [client.send(number) for number in range(COUNT)]

    client, pending = asyncio.run(left())
    with pytest.raises(RuntimeError, match="the event loop that was to send"):
        pending[-1].result(PATIENCE)
    client.close()

    async def closed() -> None:
        with ipc.Client(name) as client:
            waiting = asyncio.create_task(waited(client.send(1)))
            more = [client.send(number) for number in range(COUNT)]
            await asyncio.sleep(0)
            client.close()
            with pytest.raises(Exception, match="closed"):
                await waiting
            assert all(each._over for each in more[COUNT // 2 :])

    async def waited(pending: Any) -> Any:
        return await pending

    asyncio.run(asyncio.wait_for(closed(), PATIENCE))


def test_a_task_of_another_loop_learns_that_its_request_is_never_sent(name: str) -> None:
    waits = threading.Event()

    async def send(client: ipc.Client) -> list[Any]:
        pending = [client.send(number) for number in range(COUNT)]
        sent.put(pending)
        await asyncio.to_thread(waits.wait, PATIENCE)
        return pending

    async def waited(pending: Any) -> Any:
        return await pending

    async def main() -> None:
        pending = await asyncio.to_thread(sent.get, True, PATIENCE)
        takes = asyncio.create_task(waited(pending[0]))
        await asyncio.sleep(0.05)
        ends = asyncio.create_task(waited(pending[-1]))
        await asyncio.sleep(0.05)
        waits.set()
        with pytest.raises(RuntimeError, match="the event loop that was to send"):
            await ends
        takes.cancel()

    sent: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    with ipc.Client(name) as client:
        sender = threading.Thread(target=lambda: asyncio.run(send(client)))
        sender.start()
        asyncio.run(asyncio.wait_for(main(), PATIENCE))
        sender.join(PATIENCE)


def test_an_error_says_that_there_was_no_room_for_a_request() -> None:
    def fill() -> None:
        for number in range(10_000):
            client.send(number, timeout=0)

    async def ask() -> None:
        await client.acall("one more", timeout=0.01)

    no_room = "the time-out ended; no room for one more request to 'full', no server is there"
    with ipc.Client("full") as client:
        with pytest.raises(TimeoutError, match=f"Client.send: {no_room}"):
            fill()
        with pytest.raises(TimeoutError, match=f"Client.call: {no_room}"):
            client.call("one more", timeout=0.01)
        with pytest.raises(TimeoutError, match=f"Client.acall: {no_room}"):
            asyncio.run(ask())
