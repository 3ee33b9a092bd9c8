# SPDX-License-Identifier: Apache-2.0
"""Messages to clients: which go together in a datagram, and when."""

import errno
import math
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shmnd.broker.protocol import MAX_MESSAGE, Descriptor, decode, receive, split
from shmnd.broker.service import client_queues
from shmnd.broker.service.client_queues import Line, Lines, ServerLimits
from unit.sealed import sealed_memory


@pytest.fixture
def lines() -> Iterator[Lines]:
    made = Lines(ServerLimits())
    yield made
    made.close()


def client(lines: Lines, number: int = 1) -> socket.socket:
    """Return the other end of the socket of a new client."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    lines.add(Line(number, 0, ours, time.monotonic()))
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


def test_messages_of_one_turn_go_together(lines: Lines) -> None:
    with client(lines) as one, client(lines, 2) as other:
        for number in range(3):
            lines.push(1, {"ev": number})
        lines.push(2, {"ev": "line\nfeed"})
        assert taken(one) == taken(other) == []
        lines.send_gathered()
        assert taken(one) == [[{"ev": 0}, {"ev": 1}, {"ev": 2}]]
        assert taken(other) == [[{"ev": "line\nfeed"}]]
        lines.send_gathered()
        assert taken(one) == []


def test_a_message_with_descriptors_goes_alone_and_in_order(lines: Lines) -> None:
    with client(lines) as one:
        lines.push(1, {"ev": 1})
        lines.push(1, {"ev": 2}, (Descriptor(sealed_memory()),))
        lines.push(1, {"ev": 3})
        lines.send_gathered()
        assert taken(one) == [[{"ev": 1}], [{"ev": 2}], [{"ev": 3}]]


def test_a_datagram_stays_within_its_limits(lines: Lines) -> None:
    long = {"ev": "x" * (MAX_MESSAGE // 2)}
    with client(lines) as one:
        for _ in range(3):
            lines.push(1, long)
        lines.send_gathered()
        assert taken(one) == [[long]] * 3
        for number in range(40):
            lines.push(1, {"ev": number})
        lines.send_gathered()
        datagrams = taken(one)
        assert [message["ev"] for each in datagrams for message in each] == list(range(40))
        assert max(map(len, datagrams)) == 16


def test_a_client_that_is_dropped_is_told_nothing_more(lines: Lines) -> None:
    with client(lines) as one:
        lines.push(1, {"ev": 1})
        lines.doom(1, "test")
        lines.send_gathered()
        assert taken(one) == []


def test_what_is_gathered_waits_behind_what_had_no_room(lines: Lines) -> None:
    with client(lines) as slow:
        number = 0
        while not (queued := [line for line in lines._open.values() if line.queue]):
            lines.push(1, {"ev": number, "long": "x" * 8000})
            lines.send_gathered()
            number += 1
        lines.push(1, {"ev": number})
        lines.send_gathered()
        came = taken(slow)
        lines.flush(queued[0])
        came += taken(slow)
        assert [message["ev"] for each in came for message in each] == list(range(number + 1))


def test_a_client_that_goes_while_the_kernel_has_no_room_is_not_tried_again(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOBUFS, "no room")

    monkeypatch.setattr(client_queues, "send", full)
    with client(lines):
        lines.push(1, {"ev": 1})
        lines.send_gathered()
        assert lines.next_retry() < math.inf
        lines.doom(1, "it went")
        taken_out = lines.take_doomed()
        assert taken_out is not None
        assert taken_out[1] == "it went"
        assert lines.next_retry() == math.inf
        lines.retry(math.inf)
        assert len(lines) == 0
