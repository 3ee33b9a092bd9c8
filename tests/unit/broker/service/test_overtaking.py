# SPDX-License-Identifier: Apache-2.0
"""The order between processes: a request does not overtake what frees the port that it names."""

from shmnd.broker.place import Place
from shmnd.broker.service.server import Server
from shmnd.status import Status
from unit.broker.wire import Wire

MESSAGES = 40
"""So many unread messages of the owner; the broker otherwise takes one of each client in turn."""
TIMES = 10


def listen_and_close(owner: Wire) -> int:
    """Listen at a port, and close the listener behind other messages that need no reply."""
    port = owner.listen(1)
    for connector in range(1, MESSAGES):
        owner.send({"op": "request", "object": 1, "connector": connector})
    owner.send({"op": "close", "object": 1})
    return port


def bind(wire: Wire, port: int) -> int:
    """Bind object 1 to a port; return the status."""
    where = {"host": "127.0.0.1", "port": port}
    reply = wire.raw("bind", adapter=wire.adapter, object=1, kind="listener", **where)
    assert isinstance(reply["status"], int)
    return reply["status"]


def test_a_bind_does_not_overtake_the_close_of_the_owner(place: Place, broker: Server) -> None:
    with Wire(place).hello() as owner, Wire(place).hello() as other:
        for _ in range(TIMES):
            port = listen_and_close(owner)
            assert bind(other, port) == Status.SUCCESS
            other.ask("close", object=1)


def test_a_connect_does_not_overtake_the_close_of_the_owner(place: Place, broker: Server) -> None:
    with Wire(place).hello() as owner, Wire(place).hello() as other:
        local = other.bind(1, "connector")
        source = {"adapter": other.adapter, "object": 1, "local": ["127.0.0.1", local]}
        for _ in range(TIMES):
            port = listen_and_close(owner)
            reply = other.raw("connect", host="127.0.0.1", port=port, **source)
            assert reply["status"] == Status.CONNECTION_REFUSED


def test_a_bind_does_not_overtake_the_end_of_the_owner(place: Place, broker: Server) -> None:
    with Wire(place).hello() as other:
        for _ in range(TIMES):
            with Wire(place).hello() as owner:
                port = owner.listen(1)
                for connector in range(1, MESSAGES):
                    owner.send({"op": "request", "object": 1, "connector": connector})
            assert bind(other, port) == Status.SUCCESS
            other.ask("close", object=1)
