# SPDX-License-Identifier: Apache-2.0
"""A client that sends more requests than its queue of answers holds, and reads the answers then.

A server does not wait for a client that reads nothing, so an answer that finds no room is lost, and
with it the word that the request was taken.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shmnd import ipc
from shmnd.ipc.queue import queueing
from shmnd.ipc.service import client as of_clients

PATIENCE = 60.0
ROOM = 4096
COUNT = 3 * ROOM


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[ipc.Client]:
    monkeypatch.setattr(queueing, "_LONGEST", ROOM)
    assert of_clients._SENT * 2 < ROOM  # a request has two answers: that it was taken, and its own
    server = ipc.Server("unread")
    thread = threading.Thread(target=server.serve, args=(lambda request: request.value,))
    thread.start()
    with ipc.Client("unread") as made:
        yield made
    server.close()
    thread.join()


def test_each_request_has_its_answer(client: ipc.Client) -> None:
    pending = [client.send(number) for number in range(COUNT)]
    assert [each.result(PATIENCE).value for each in pending] == list(range(COUNT))


def test_requests_of_several_threads(client: ipc.Client) -> None:
    found: dict[int, list[Any]] = {}

    def ask(first: int) -> None:
        pending = [client.send(number) for number in range(first, first + COUNT // 4)]
        found[first] = [each.result(PATIENCE).value for each in pending]

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(0, COUNT, COUNT // 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {first: list(range(first, first + COUNT // 4)) for first in found}
    assert len(found) == 4
