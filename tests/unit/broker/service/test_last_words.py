# SPDX-License-Identifier: Apache-2.0
"""Messages of a client that leaves while the broker sends to it."""

import os
import socket

import pytest

from shmnd.broker.place import Place
from shmnd.broker.service import client_queues
from shmnd.broker.service.server import Server
from unit.broker.wire import Wire
from unit.sealed import sealed_memory


@pytest.mark.parametrize("event", ["unread", "unsent"])
def test_the_last_messages_of_a_client_are_handled(
    place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """The active side closes its adapter and leaves as the other side accepts."""
    with Wire(place).hello() as passive, Wire(place).hello() as active:
        port = passive.listen(1)
        passive.ask("request", object=1, connector=5)
        connection = active.connect(1, port)
        passive.event("offer")
        sends = client_queues.send

        def send_late(sock: socket.socket, data: bytes, fds: list[int] | None = None) -> None:
            if b"accepted" in data:
                if event == "unread":
                    sends(sock, data, fds or [])
                active.send({"op": "adapter_close", "adapter": active.adapter})
                active.sock.close()
                if event == "unread":
                    return
            sends(sock, data, fds or [])

        monkeypatch.setattr(client_queues, "send", send_late)
        link = sealed_memory()
        passive.ask("accept", [link], connection=connection, size=4096)
        os.close(link)
        assert passive.event("withdrawn")[0]["connection"] == connection
