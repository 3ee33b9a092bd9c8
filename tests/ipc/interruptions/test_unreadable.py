# SPDX-License-Identifier: Apache-2.0
"""A handler raises while a message that cannot be unpickled is read: its request ends even so."""

import itertools
from typing import Any

import pytest

from interrupting import interrupted
from shmnd import ipc

PATIENCE = 30.0


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)


def in_part(path: str) -> bool:
    return path.endswith("service_values.py")


def test_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmnd.ipc.service.under_way.UNCLAIMED", 10 * PATIENCE)
    with ipc.Server("s") as server, ipc.Client("s") as client:

        def receive() -> None:
            with pytest.raises(ValueError, match="no number"):
                server.receive(PATIENCE)

        for place in itertools.count():
            pending = client.send(Unreadable())
            if not interrupted(place, receive, in_part):
                break
            if not pending.done():
                receive()
            with pytest.raises(ipc.RemoteError, match="cannot unpickle"):
                pending.result(PATIENCE)
        assert place > 5


def test_an_answer() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        for place in itertools.count():
            pending = client.send("ask")
            server.receive(PATIENCE).respond(Unreadable())

            def read(pending: Any = pending) -> None:
                with pytest.raises(ValueError, match="no number"):
                    pending.result(PATIENCE)

            came = interrupted(place, read, in_part)
            read()
            if not came:
                break
        assert place > 5
