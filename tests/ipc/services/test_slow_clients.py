# SPDX-License-Identifier: Apache-2.0
"""Streams whose client takes no value: a server that waits for it has a time-out."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from shmnd import ipc

PATIENCE = 20.0
SHORT = 0.05


@pytest.fixture
def ends() -> Iterator[tuple[ipc.Server, ipc.Client]]:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        yield server, client


async def counted(most: int) -> AsyncIterator[int]:
    for number in range(most):
        yield number


def test_a_stream_ends_at_its_timeout(ends: tuple[ipc.Server, ipc.Client]) -> None:
    server, client = ends
    stream = client.stream(1)
    request = server.receive(PATIENCE)
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match=r"^Request\.stream: process \d+ has taken no value"):
        request.stream(iter(range(1000)), timeout=SHORT)
    assert time.monotonic() - begun >= SHORT
    assert not request.answered
    request.fail(BufferError("too slow"))
    with pytest.raises(BufferError, match="too slow"):
        list(stream)


def test_a_stream_that_has_room_has_no_timeout(ends: tuple[ipc.Server, ipc.Client]) -> None:
    server, client = ends
    stream = client.stream(1)
    server.receive(PATIENCE).stream(range(50), timeout=0)
    assert [sample.value for sample in stream] == list(range(50))


@pytest.mark.parametrize("values", [range(1000), counted])
def test_a_stream_of_a_task_ends_at_its_timeout(
    ends: tuple[ipc.Server, ipc.Client], values: Any
) -> None:
    server, client = ends
    stream = client.stream(1)
    request = server.receive(PATIENCE)

    async def send() -> None:
        given = values(1000) if values is counted else values
        with pytest.raises(TimeoutError, match=r"^Request\.astream: process"):
            await request.astream(given, timeout=SHORT)

    asyncio.run(send())
    request.fail(BufferError("too slow"))
    with pytest.raises(BufferError, match="too slow"):
        list(stream)


def test_a_stream_that_continues_in_a_loop_ends_at_its_timeout(
    ends: tuple[ipc.Server, ipc.Client],
) -> None:
    server, client = ends
    stream = client.stream(1)
    request = server.receive(PATIENCE)

    async def send() -> None:
        rest = request.stream(iter(range(1000)), timeout=SHORT)
        assert rest is not None
        with pytest.raises(TimeoutError, match=r"^Request\.stream: process"):
            await rest

    asyncio.run(send())
    with pytest.raises(TimeoutError, match=r"^Request\.stream: process"):
        list(stream)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5"])
def test_a_timeout_that_is_none_sends_no_value(
    ends: tuple[ipc.Server, ipc.Client], timeout: Any
) -> None:
    server, client = ends
    stream = client.stream(1)
    request = server.receive(PATIENCE)
    with pytest.raises(ValueError, match=r"^Request\.stream: timeout"):
        request.stream([1], timeout)
    with pytest.raises(ValueError, match=r"^Request\.astream: timeout"):
        asyncio.run(request.astream([1], timeout))
    request.stream([2])
    assert [sample.value for sample in stream] == [2]
