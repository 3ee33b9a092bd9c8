# SPDX-License-Identifier: Apache-2.0
"""Streams whose values a program does not read while it waits for other answers."""

import asyncio
import select
import threading
import time
import uuid
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import pytest

from shmnd import ipc
from shmnd.ipc.service import client as of_clients
from shmnd.ipc.service.pending import Stream
from shmnd.ipc.service.request import Request
from shmnd.ipc.service.streaming import AHEAD

PATIENCE = 60.0
MOST = 1000


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[ipc.Client]:
    """Of a server that answers -1 at once, and a number by a stream of so many values."""
    monkeypatch.setattr(of_clients, "MOST_UNREAD", MOST)

    def serve(request: Request) -> object:
        number = request.value
        return number if number < 0 else (each for each in islice(count(), number))

    server = ipc.Server("unread")
    thread = threading.Thread(target=server.serve, args=(serve,))
    thread.start()
    with ipc.Client("unread") as made:
        yield made
    server.close()
    thread.join()


def until_over(client: ipc.Client, pending: of_clients.Pending) -> None:
    """Ask for something else until the server has said the last of a request."""
    for _ in range(100_000):
        client.call(-1, PATIENCE)
        if pending._over:
            return


def test_a_stream_that_is_not_read_ends_behind_the_most(client: ipc.Client) -> None:
    with client.stream(10**9) as values:
        until_over(client, values._pending)
        assert len(values._pending._answers) == MOST
        assert [each.value for each in islice(values, MOST)] == list(range(MOST))
        with pytest.raises(RuntimeError, match=f"{MOST} values of the stream wait to be read"):
            next(values)
    assert client.call(-1, PATIENCE).value == -1  # the server has closed its generator


def test_one_of_as_many_values_is_read_whole(client: ipc.Client) -> None:
    values = client.stream(MOST)
    until_over(client, values._pending)
    assert [each.value for each in values] == list(range(MOST))


def test_a_request_that_a_stream_answers_keeps_its_first_value(client: ipc.Client) -> None:
    pending = client.send(MOST)
    until_over(client, pending)
    assert len(pending._answers) == 1
    assert [pending.result(PATIENCE).value for _ in range(2)] == [0, 0]


def test_an_answer_that_another_call_took_is_ready(client: ipc.Client) -> None:
    """It is no longer in the memory that wakes a wait set, which slept on."""
    with ipc.WaitSet(client) as found:
        pending = client.send(-2)
        until_over(client, pending)
        assert found.wait(PATIENCE) == (client,)
        assert found.wait(0) == ()
        assert pending.done()
        again = client.send(-3)
        until_over(client, again)
        assert again.result(PATIENCE).value == -3
        assert found.wait(0) == ()


def test_an_answer_that_another_thread_takes_wakes_a_wait_set(client: ipc.Client) -> None:
    client.fileno()
    pending = client.send(-2)
    until_over(client, pending)
    assert select.select([client.fileno()], [], [], PATIENCE)[0]
    assert client.ready()


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """One whose server has the next value as soon as the client has taken one."""
    with ipc.Server("fast") as server, ipc.Client("fast") as made:
        values = made.stream()
        request = server.receive(PATIENCE)
        numbers = iter(range(3 * MOST))
        get_into = made._answers._get_into

        def refilled(box: list[object], *args: object) -> None:
            get_into(box, *args)
            for number in islice(numbers, 1):
                request._send_part(number, "test")

        monkeypatch.setattr(made._answers, "_get_into", refilled)
        request._send_part(next(numbers), "test")
        yield values
        for number in numbers:
            request._send_part(number, "test")
        request._finish()
        assert [each.value for each in values] == list(range(MOST, 3 * MOST))


def test_a_fast_server_does_not_fill_the_memory_of_a_client_that_reads(stream: Stream) -> None:
    unread = 0
    for number in range(MOST):
        assert next(stream).value == number
        unread = max(unread, len(stream._pending._answers))
    assert unread < MOST // 4


def test_nor_that_of_a_client_that_reads_in_an_event_loop(stream: Stream) -> None:
    async def read() -> int:
        unread = number = 0
        async for answer in stream:
            assert answer.value == number
            unread = max(unread, len(stream._pending._answers))
            number += 1
            if number == MOST:
                break
        return unread

    assert asyncio.run(read()) < MOST // 4


def test_answers_that_a_call_leaves_to_the_next_one_are_rung(stream: Stream) -> None:
    client = stream._pending._client
    assert isinstance(client, ipc.Client)
    descriptor = client.fileno()
    for number in range(MOST):
        assert select.select([descriptor], [], [], PATIENCE)[0]
        assert next(stream).value == number


@pytest.fixture
def streaming() -> Iterator[str]:
    """The name of a server that waits until its streams are read, and takes nothing meanwhile."""
    name = f"s{uuid.uuid4().hex}"
    server = ipc.Server(name)
    handler = (lambda request: request.stream([request.value]),)
    thread = threading.Thread(target=server.serve, args=handler)
    thread.start()
    yield name
    server.close()
    thread.join()


@pytest.mark.parametrize("timeout", [10, None])
@pytest.mark.timeout(60)
def test_a_client_that_only_sends_takes_values_while_it_waits_for_room(
    streaming: str, timeout: float | None
) -> None:
    with ipc.Client(streaming) as client:
        pending = [client.send(number, timeout) for number in range(300)]
        assert [each.result(10).value for each in pending] == list(range(300))


@pytest.mark.timeout(60)
def test_a_result_in_the_thread_of_a_loop_takes_values_while_it_waits_for_room(
    streaming: str,
) -> None:
    async def ask() -> None:
        with ipc.Client(streaming) as client:
            pending = [client.send(number) for number in range(300)]
            assert pending[-1].result(PATIENCE / 2).value == 299
            assert [each.result(10).value for each in pending] == list(range(300))

    asyncio.run(ask())


@pytest.mark.timeout(60)
def test_values_are_taken_for_requests_of_a_loop_in_which_no_task_waits(streaming: str) -> None:
    async def ask() -> None:
        with ipc.Client(streaming) as client:
            pending = [client.send(number) for number in range(200)]
            for _ in range(2000):
                if not pending[-1]._unsent:
                    break
                await asyncio.sleep(0.01)
            assert not pending[-1]._unsent

    asyncio.run(ask())


@pytest.mark.timeout(60)
def test_a_task_that_calls_takes_values_while_it_waits_for_room(streaming: str) -> None:
    async def ask() -> None:
        with ipc.Client(streaming) as client:
            pending = []
            while client._answers.qsize() < AHEAD or not client._requests.full():
                try:
                    pending.append(client.send(1, timeout=0))
                except TimeoutError:
                    await asyncio.sleep(0.001)
            assert (await client.acall(-1, timeout=PATIENCE / 3)).value == -1
            assert {each.result(10).value for each in pending} == {1}

    asyncio.run(ask())


@pytest.mark.timeout(60)
def test_a_send_that_waits_for_room_sleeps_until_there_is_some_or_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []
    take = ipc.Client._take_answers

    def take_counted(client: Any, **options: Any) -> None:
        taken.append(len(taken))
        take(client, **options)

    with ipc.Server("waits", buffer=1) as server, ipc.Client("waits", buffer=1) as client:
        first = client.send(1, timeout=0)
        request = server.receive(PATIENCE)
        while not client._requests.full():
            client.send(2, timeout=0)
        monkeypatch.setattr(ipc.Client, "_take_answers", take_counted)
        with pytest.raises(TimeoutError):
            client.send(3, timeout=1)
        assert len(taken) <= 3, "it polls"
        begun = time.monotonic()
        thread = threading.Timer(0.3, request.respond, ("first",))
        thread.start()
        with pytest.raises(TimeoutError):
            client.send(3, timeout=1)
        thread.join()
        assert first._answers, "it took the answer while it waited"
        assert time.monotonic() - begun >= 1
        thread = threading.Timer(0.3, lambda: server.receive(PATIENCE).respond(2))
        thread.start()
        client.send(4, timeout=PATIENCE)
        thread.join()


@pytest.mark.timeout(60)
def test_a_send_that_waits_as_the_only_request_takes_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread may open streams of its client meanwhile."""
    name = f"s{uuid.uuid4().hex}"
    took = threading.Event()
    with ipc.Client(name) as filling, ipc.Client(name) as client, ipc.Server(name) as server:
        first = [filling.send(number) for number in range(8)]
        monkeypatch.setattr(client, "_take_answers", lambda **options: took.set())
        sending = threading.Thread(target=client.send, args=(8, PATIENCE))
        sending.start()
        assert took.wait(PATIENCE / 3)
        assert [server.receive(PATIENCE).value for _ in range(9)] == list(range(9))
        sending.join()
        assert len(first) == 8
