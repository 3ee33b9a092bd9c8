# SPDX-License-Identifier: Apache-2.0
"""Streams whose client takes no value: a server that waits for it has a time-out."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from shmnd import ipc
from shmnd.ipc.service.streaming import AHEAD

PATIENCE = 20.0
SHORT = 0.05
TIMEOUT = 0.3
TRIES = 15  # fewer than it makes before it sleeps


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


@pytest.mark.parametrize("timeout", [PATIENCE, 0])
@pytest.mark.parametrize("look", ["_must_wait", "_is_ahead"])
def test_a_stream_whose_request_another_thread_fails_has_no_timeout(
    look: str, timeout: float, ends: tuple[ipc.Server, ipc.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks of the stream; its client has not died either."""
    server, client = ends
    stream = client.stream(1)
    request = server.receive(PATIENCE)
    waits_still = getattr(request, look)

    def fail_behind() -> bool:
        waits = bool(waits_still())
        if waits:
            request.fail(BufferError("another thread"))
        return waits

    monkeypatch.setattr(request, look, fail_behind)
    with pytest.raises(RuntimeError, match="it was answered before"):
        request.stream(range(1000), timeout=timeout)
    with pytest.raises(BufferError, match="another thread"):
        list(stream)


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


def by_stream(request: Any, timeout: float | None) -> None:
    request.stream([1, 2], timeout)


def by_astream(request: Any, timeout: float | None) -> None:
    asyncio.run(request.astream([1, 2], timeout))


def by_stream_in_a_loop(request: Any, timeout: float | None) -> None:
    async def main() -> None:
        await request.stream([1, 2], timeout)

    asyncio.run(main())


WAYS = [by_stream, by_astream, by_stream_in_a_loop]


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_reads_another_stream_takes_values(
    monkeypatch: pytest.MonkeyPatch, way: Callable[[Any, float | None], None]
) -> None:
    """The other stream is faster each time, for longer than the time-out."""
    with ipc.Server("s") as server, ipc.Client("s") as client:
        streams = [client.stream(number) for number in range(2)]
        fast, slow = (server.receive(PATIENCE) for _ in streams)
        for number in range(AHEAD):
            fast._send_part(number, "test")
        must_wait, tries = slow._must_wait, 0

        def be_late() -> bool:
            nonlocal tries
            tries += 1
            if tries > TRIES:
                return False
            client._answers.get(timeout=PATIENCE)
            fast._send_part(AHEAD + tries, "test")
            assert must_wait()
            time.sleep(2 * TIMEOUT / TRIES)
            return True

        monkeypatch.setattr(slow, "_must_wait", be_late)
        way(slow, TIMEOUT)
        assert tries > TRIES
        assert [each.value for each in streams[1]] == [1, 2]
