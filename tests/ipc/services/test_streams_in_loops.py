# SPDX-License-Identifier: Apache-2.0
"""`Request.stream` in an event loop: no client that reads slowly holds up the others."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shmnd import ipc

PATIENCE = 60.0


def _failing() -> Iterator[int]:
    yield from range(200)
    raise LookupError("no more")


class _Server:
    """Serves in a loop of a thread of its own, by handlers that call `Request.stream`."""

    def __init__(self) -> None:
        self.closed: list[bool] = []
        self.refused: list[str] = []
        self._server = ipc.Server("s")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()

    def _endless(self) -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            self.closed.append(True)

    async def _handle(self, request: Any) -> Any:
        if request.value == "endless":
            request.stream(self._endless())
        elif request.value == "awaited":
            await request.stream(range(200))
        elif request.value == "cancelled":
            request.stream(self._endless()).cancel()
        elif request.value == "busy":
            request.stream(self._endless())
            await asyncio.sleep(10 * PATIENCE)
        elif request.value == "short":
            assert request.stream(iter([1, 2])) is None
        elif request.value == "failing":
            request.stream(_failing())
        elif request.value == "twice":
            request.stream(range(200))
            with pytest.raises(RuntimeError, match="under way"):
                request.respond(1)
            with pytest.raises(RuntimeError, match="under way"):
                request.stream([1])
        return request.value  # that of a call

    async def _serve(self) -> None:
        serving = self._server.serve(self._handle)
        assert serving is not None
        await serving

    def close(self) -> None:
        self._server.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@contextmanager
def served() -> Iterator[tuple[_Server, ipc.Client]]:
    server = _Server()
    try:
        with ipc.Client("s") as client:
            yield server, client
    finally:
        server.close()


def test_a_client_that_reads_nothing_holds_up_no_other() -> None:
    with served() as (server, client), ipc.Client("s") as other:
        with client.stream("endless") as values:
            assert next(values).value == 0
            for number in range(5):
                assert other.call(number, PATIENCE).value == number
            assert [next(values).value for _ in range(300)] == list(range(1, 301))
        while not server.closed:  # the server learns it meanwhile
            assert other.call("call", PATIENCE).value == "call"


@pytest.mark.parametrize("word", ["awaited", "twice"])
def test_all_values_come_in_order(word: str) -> None:
    with served() as (_, client):
        for _ in range(3):
            assert [each.value for each in client.stream(word)] == list(range(200))
        assert [each.value for each in client.stream("short")] == [1, 2]


def test_an_exception_of_the_values_reaches_the_client() -> None:
    with served() as (_, client):
        values = client.stream("failing")
        assert [next(values).value for _ in range(200)] == list(range(200))
        with pytest.raises(LookupError, match="no more"):
            next(values)


def test_a_task_that_is_cancelled_before_it_runs_ends_the_stream() -> None:
    with served() as (server, client):
        with pytest.raises(ipc.RemoteError):
            for _ in client.stream("cancelled"):
                pass
        assert server.closed == [True]
        assert client.call("call", PATIENCE).value == "call"


@pytest.mark.parametrize("word", ["endless", "busy"])
def test_the_end_of_the_server_ends_the_stream(word: str) -> None:
    with served() as (server, client):
        values = client.stream(word)
        assert next(values).value == 0
        server.close()
        with pytest.raises(ipc.RemoteError):
            for _ in values:
                pass
        assert server.closed


def test_streams_of_any_length_in_the_loop_of_their_client() -> None:
    """Around the number of values that are sent without a task, all at once."""
    lengths = [0, 1, 63, 64, 65, 127, 128, 500]

    async def handle(request: Any) -> None:
        request.stream(range(request.value))

    async def read(client: ipc.Client, length: int) -> list[int]:
        return [each.value async for each in client.stream(length)]

    async def main() -> None:
        with ipc.Server("s") as server, ipc.Client("s") as client:
            answering = server.serve(handle)
            assert answering is not None
            serving = asyncio.ensure_future(answering)
            found = await asyncio.gather(*(read(client, length) for length in lengths))
            assert found == [list(range(length)) for length in lengths]
            async for answer in client.stream(1 << 20):
                if answer.value == 5:
                    break
            assert await read(client, 3) == [0, 1, 2]
            serving.cancel()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_stream_with_a_wrong_timeout_is_refused_before_its_request(in_loop: bool) -> None:
    async def ask(client: ipc.Client) -> None:
        client.stream(1, timeout=-1)

    with ipc.Server("wrong") as server, ipc.Client("wrong") as client:
        with pytest.raises(ValueError, match=r"^Client\.stream: timeout"):
            asyncio.run(ask(client)) if in_loop else client.stream(1, timeout=-1)
        with pytest.raises(TimeoutError):
            server.receive(0)
