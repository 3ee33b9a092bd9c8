# SPDX-License-Identifier: Apache-2.0
"""Streams whose values a program does not read while it waits for other answers."""

import asyncio
import select
import threading
import uuid
from collections.abc import Iterator
from itertools import count, islice

import pytest

from shmnd import ipc
from shmnd.ipc.service import client as of_clients
from shmnd.ipc.service.pending import Stream
from shmnd.ipc.service.request import Request

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


@pytest.mark.parametrize("timeout", [10, None])
@pytest.mark.timeout(60)
def test_a_client_that_only_sends_takes_values_while_it_waits_for_room(
    timeout: float | None,
) -> None:
    """Its server waits until it reads of its streams, and takes no request meanwhile."""
    name = f"s{uuid.uuid4().hex}"
    with ipc.Server(name) as server:
        handler = (lambda request: request.stream([request.value]),)
        thread = threading.Thread(target=server.serve, args=handler)
        thread.start()
        try:
            with ipc.Client(name) as client:
                pending = [client.send(number, timeout) for number in range(300)]
                assert [each.result(10).value for each in pending] == list(range(300))
        finally:
            server.close()
            thread.join()
