# SPDX-License-Identifier: Apache-2.0
"""Streams whose values a program does not read while it waits for other answers."""

import select
import threading
from collections.abc import Iterator
from itertools import count, islice

import pytest

from shmnd import ipc
from shmnd.ipc.service import client as of_clients
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
