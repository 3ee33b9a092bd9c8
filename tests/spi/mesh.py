# SPDX-License-Identifier: Apache-2.0
"""One member of a mesh, where all members connect to all others at the same time.

So each pair meets head to head. The connect of the lower rank stands, the other one is refused,
and its queue pair, with the receives that are posted on it, is used to accept.
"""

import random
from dataclasses import dataclass
from typing import Any

from shmnd import Status
from spi.harness import WAIT, Buffer, End, nd_error, statuses

LENGTHS = (0, 40, 5000, 100_000)
PATIENCE = 4 * WAIT


@dataclass
class Neighbour:
    """What a member has for one of the others."""

    rank: int
    qp: Any
    outgoing: Buffer
    incoming: Buffer
    connector: Any
    asked: Any = None


def _message(sender: int, receiver: int, length: int) -> bytes:
    return bytes([sender * 16 + receiver]) * length


def take_part(end: End, rank: int, addresses: list[tuple[str, int]], seed: int) -> int:
    """Meet all others, exchange with each, leave in an order of one's own; messages received."""
    dice = random.Random(seed * 100 + rank)
    others = [_prepare(end, other) for other in range(len(addresses)) if other != rank]
    dice.shuffle(others)
    neighbours = {neighbour.rank: neighbour for neighbour in others}
    requests = [end.new_connector() for _ in others]
    offers = [end.listener.get_connection_request(connector) for connector in requests]
    for each in others:
        each.asked = each.connector.connect(each.qp, addresses[each.rank], 1, 1, bytes([rank]))
    accepted = []
    for offer, connector in zip(offers, requests, strict=True):
        offer.result(timeout=PATIENCE)
        (asker,) = connector.get_private_data()
        if asker > rank:
            connector.reject(b"mine stands")
        else:
            accepted.append(_accept_instead(neighbours[asker], connector))
    for each in others:
        if each.rank > rank:
            each.asked.result(timeout=PATIENCE)
            each.connector.complete_connect().result(timeout=PATIENCE)
    for overlapped in accepted:
        overlapped.result(timeout=PATIENCE)
    received = _exchange(end, rank, neighbours)
    _leave(others, dice)
    end.leftover()
    return received


def _prepare(end: End, rank: int) -> Neighbour:
    total = sum(LENGTHS)
    outgoing, incoming = end.memory(total), end.memory(total)
    each = Neighbour(rank, end.new_qp(context=rank), outgoing, incoming, end.new_connector())
    start = 0
    for length in LENGTHS:
        each.qp.receive(incoming.sge(start, length), (rank, length))
        start += length
    return each


def _accept_instead(each: Neighbour, connector: Any) -> Any:
    """Our own connect is refused; the queue pair is free then."""
    with nd_error(Status.CONNECTION_REFUSED):
        each.asked.result(timeout=PATIENCE)
    assert each.connector.get_private_data() == b"mine stands"
    each.connector = connector
    return connector.accept(each.qp, 1, 1)


def _exchange(end: End, rank: int, neighbours: dict[int, Neighbour]) -> int:
    for each in neighbours.values():
        start = 0
        for length in LENGTHS:
            each.outgoing.put(_message(rank, each.rank, length), start)
            each.qp.send(each.outgoing.sge(start, length), ("sent", length))
            start += length
    wanted = 2 * len(LENGTHS) * len(neighbours)
    completions = end.reap(wanted, timeout=PATIENCE)
    assert set(statuses(completions)) == {Status.SUCCESS}
    received = [c for c in completions if c.request_context[0] != "sent"]
    for each in neighbours.values():
        mine = [c for c in received if c.queue_pair_context == each.rank]
        assert [c.request_context for c in mine] == [(each.rank, n) for n in LENGTHS]
        assert [c.bytes_transferred for c in mine] == list(LENGTHS)
        held = b"".join(_message(each.rank, rank, length) for length in LENGTHS)
        assert each.incoming.get() == held
    return len(received)


def _leave(others: list[Neighbour], dice: random.Random) -> None:
    """Disconnect, or just release, in any order; the other side may have been first."""
    dice.shuffle(others)
    ending = []
    for each in others:
        if dice.random() < 0.7:
            ending.append(each.connector.disconnect())
        else:
            each.qp.close()
    for overlapped in ending:
        overlapped.result(timeout=PATIENCE)
