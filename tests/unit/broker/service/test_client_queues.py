# SPDX-License-Identifier: Apache-2.0
"""Messages to clients: which go together in a datagram, and when."""

import errno
import math
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shmnd.broker.place import Place
from shmnd.broker.protocol import MAX_MESSAGE, PassedFd, decode, receive, split
from shmnd.broker.service import client_queues
from shmnd.broker.service.client_queues import Client, Clients, ServerLimits
from shmnd.broker.service.server import Server
from unit.broker.wire import Wire
from unit.broker.world import World
from unit.sealed import sealed_memory


@pytest.fixture
def clients() -> Iterator[Clients]:
    made = Clients(ServerLimits())
    yield made
    made.close()


def connected(clients: Clients, number: int = 1) -> socket.socket:
    """Return the other end of the socket of a new client."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    clients.add(Client(number, 0, ours, time.monotonic()))
    return theirs


def taken(sock: socket.socket) -> list[list[dict[str, Any]]]:
    """Return the messages of each datagram that is there."""
    datagrams: list[list[dict[str, Any]]] = []
    while True:
        try:
            datagram = receive(sock)
        except BlockingIOError:
            return datagrams
        datagrams.append([decode(each) for each in split(datagram.data)])


def test_messages_of_one_turn_go_together(clients: Clients) -> None:
    with connected(clients) as one, connected(clients, 2) as other:
        for number in range(3):
            clients.push(1, {"ev": number})
        clients.push(2, {"ev": "line\nfeed"})
        assert taken(one) == taken(other) == []
        clients.send_gathered()
        assert taken(one) == [[{"ev": 0}, {"ev": 1}, {"ev": 2}]]
        assert taken(other) == [[{"ev": "line\nfeed"}]]
        clients.send_gathered()
        assert taken(one) == []


def test_a_message_that_may_come_later_waits_for_the_next_one(clients: Clients) -> None:
    with connected(clients) as one, connected(clients, 2) as other:
        clients.push(1, {"re": 1}, later=True)
        clients.push(2, {"re": 2}, later=True)
        clients.send_gathered()
        assert taken(one) == taken(other) == []
        clients.push(1, {"ev": 3})
        clients.send_gathered()
        assert taken(one) == [[{"re": 1}, {"ev": 3}]]
        clients.push(2, {"ev": 4}, (PassedFd(sealed_memory(1)),))
        assert taken(other) == [[{"re": 2}], [{"ev": 4}]]
        assert clients.next_retry() == math.inf


def test_a_message_that_may_come_later_waits_a_moment(clients: Clients) -> None:
    with connected(clients) as one, connected(clients, 2) as other:
        clients.push(1, {"re": 1}, later=True)
        until = clients.next_retry()
        assert until <= time.monotonic() + 0.005
        clients.push(1, {"re": 2}, later=True)
        clients.push(2, {"re": 3}, later=True)
        assert clients.next_retry() == until
        clients.retry(until)
        assert taken(one) == [[{"re": 1}, {"re": 2}]]
        clients.push(1, {"re": 4}, later=True)
        clients.retry(math.inf)
        assert taken(one) == [[{"re": 4}]]
        assert taken(other) == [[{"re": 3}]]
        for number in range(16):
            clients.push(1, {"re": number}, later=True)
        assert [len(each) for each in taken(one)] == [16], "no more wait for each other"
        clients.push(1, {"re": 5}, later=True)
        clients.doom(1, "went")
        clients.take_doomed()
        assert clients.next_retry() == math.inf
        clients.retry(math.inf)
        assert one.recv(1) == b""


def test_the_answer_to_a_connect_comes_also_where_nothing_follows(
    place: Place, broker: Server
) -> None:
    with Wire(place).hello() as active, Wire(place).hello() as passive:
        port = passive.listen(1)
        assert active.connect(1, port, later=True) > 0
        passive.ask("close", object=1)
        assert active.event("refused")


@pytest.mark.parametrize("later", [False, True])
def test_only_the_success_of_a_connect_may_come_later(world: World, later: bool) -> None:
    active, passive = world.party(), world.party()
    listener = passive.listen(5000)
    fields = active.connect_fields(5000, later=later)
    items = world.state.outbox.items
    world.state.handle(active.number, {"op": "connect", "id": 99, **fields}, [])
    assert [(item.client, item.later) for item in items] == [(active.number, later)]
    passive.ask("close", object=listener)
    fields = active.connect_fields(5000, later=later)
    world.state.handle(active.number, {"op": "connect", "id": 100, **fields}, [])
    assert [(item.client, item.later) for item in items] == [(active.number, False)], "a refusal"


def test_a_message_with_descriptors_goes_alone_and_in_order(clients: Clients) -> None:
    with connected(clients) as one:
        clients.push(1, {"ev": 1})
        clients.push(1, {"ev": 2}, (PassedFd(sealed_memory()),))
        clients.push(1, {"ev": 3})
        clients.send_gathered()
        assert taken(one) == [[{"ev": 1}], [{"ev": 2}], [{"ev": 3}]]


def test_a_datagram_stays_within_its_limits(clients: Clients) -> None:
    long = {"ev": "x" * (MAX_MESSAGE // 2)}
    with connected(clients) as one:
        for _ in range(3):
            clients.push(1, long)
        clients.send_gathered()
        assert taken(one) == [[long]] * 3
        for number in range(40):
            clients.push(1, {"ev": number})
        clients.send_gathered()
        datagrams = taken(one)
        assert [message["ev"] for each in datagrams for message in each] == list(range(40))
        assert max(map(len, datagrams)) == 16


def test_a_client_that_is_dropped_receives_nothing_more(clients: Clients) -> None:
    with connected(clients) as one:
        clients.push(1, {"ev": 1})
        clients.doom(1, "test")
        clients.send_gathered()
        assert taken(one) == []


def test_gathered_messages_wait_behind_queued_messages(clients: Clients) -> None:
    with connected(clients) as slow:
        number = 0
        while not (queued := [each for each in clients._open.values() if each.queue]):
            clients.push(1, {"ev": number, "long": "x" * 8000})
            clients.send_gathered()
            number += 1
        clients.push(1, {"ev": number})
        clients.send_gathered()
        came = taken(slow)
        clients.flush(queued[0])
        came += taken(slow)
        assert [message["ev"] for each in came for message in each] == list(range(number + 1))


def test_a_client_that_goes_while_the_kernel_has_no_room_is_not_tried_again(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOBUFS, "no room")

    monkeypatch.setattr(client_queues, "send", full)
    with connected(clients):
        clients.push(1, {"ev": 1})
        clients.send_gathered()
        assert clients.next_retry() < math.inf
        clients.doom(1, "it went")
        taken_out = clients.take_doomed()
        assert taken_out is not None
        assert taken_out[1] == "it went"
        assert clients.next_retry() == math.inf
        clients.retry(math.inf)
        assert len(clients) == 0
