# SPDX-License-Identifier: Apache-2.0
"""A broker whose descriptors do not suffice says so, with its limit and the remedy."""

import errno
import os
import resource
import socket
import time
from typing import Any

import pytest

from shmnd.broker.place import Place
from shmnd.broker.protocol import PassedFd, decode, receive
from shmnd.broker.service import descriptor_limit
from shmnd.broker.service.descriptor_limit import Reserve, explained, limit_of_broker
from shmnd.broker.service.server import Server, ServerLimits
from shmnd.status import Status
from unit.broker.wire import PATIENCE, Wire, serving
from unit.sealed import sealed_memory

NONE_LEFT = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Poor:
    """A listener that accepts nothing unless the descriptor that is kept back is free."""

    def __init__(self, listener: socket.socket, reserve: Reserve) -> None:
        self._listener, self._reserve = listener, reserve
        self.rich = False

    def accept(self) -> Any:
        if self._reserve._fd >= 0 and not self.rich:
            raise NONE_LEFT
        return self._listener.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


def impoverish(server: Server) -> Poor:
    poor = Poor(server._listener, server._reserve)  # has all methods of a socket that are called
    server._selector.unregister(server._listener)
    server._listener = poor  # type: ignore[assignment]
    server._selector.register(poor, 1)  # type: ignore[arg-type]
    return poor


def answer_at(wire: Wire) -> dict[str, Any]:
    wire.sock.settimeout(PATIENCE)
    return decode(receive(wire.sock).data)


def test_a_client_without_a_descriptor_is_turned_away(
    place: Place, broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptor_limit, "_PATIENCE", 0.3)
    with Wire(place).hello() as good:
        poor = impoverish(broker)
        good.ask("sync")
        begun = time.monotonic()
        with Wire(place) as first, Wire(place) as second:
            for each in first, second:
                answer = answer_at(each)
                assert (answer["re"], answer["status"]) == (0, Status.INSUFFICIENT_RESOURCES)
                assert limit_of_broker() in answer["message"]
                assert each.sock.recv(1) == b""
        assert time.monotonic() - begun >= 0.3, "a shortage may be short"
        poor.rich = True
        with Wire(place) as late:
            late.hello()
        good.ask("sync")


def test_the_limit_of_processes_says_where_it_comes_from(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (16, 16))
    with serving(place) as server:
        server._max_clients = 1
        with Wire(place).hello(), Wire(place) as second:
            message = answer_at(second)["message"]
    assert "1 processes are here already" in message
    assert "may have 16 descriptors" in message
    assert "--replace" in message
    monkeypatch.undo()
    with serving(place, limits=ServerLimits(clients=1)), Wire(place).hello(), Wire(place) as other:
        assert "descriptors" not in answer_at(other)["message"]


def test_a_limit_of_segments_that_comes_from_descriptors_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (16, 16))
    memory = PassedFd(sealed_memory())
    with serving(place) as server, Wire(place).hello() as client:
        limit = server._state._limits.segments
        fields = {"adapter": client.adapter, "size": 4096, "writable": False}
        replies = [
            client.raw("segment", [memory.fileno()], seg=number, **fields)
            for number in range(limit + 1)
        ]
    assert [reply["status"] for reply in replies[:limit]] == [Status.SUCCESS] * limit
    assert replies[limit]["status"] == Status.INSUFFICIENT_RESOURCES
    assert f"the limit of {limit} segments of a process" in replies[limit]["message"]
    assert "may have 16 descriptors" in replies[limit]["message"]
    assert "--replace" in replies[limit]["message"]


def test_failures_name_the_limit_of_the_broker_or_of_the_machine() -> None:
    assert explained(NONE_LEFT).endswith(limit_of_broker())
    assert str(os.getpid()) in limit_of_broker()
    assert explained(OSError(errno.ENFILE, "none")).endswith(
        "; the limit of open files of the machine is fs.file-max"
    )
    for number in (errno.ENOMEM, errno.ENOBUFS):
        text = explained(OSError(number, "no memory"))
        assert f"the control group of the broker (process {os.getpid()})" in text
    other = OSError(errno.EPERM, "forbidden")
    assert explained(other) == str(other)


def test_a_reserve_is_taken_again() -> None:
    reserve = Reserve()
    assert not reserve.met(NONE_LEFT, 5.0)
    assert not reserve.met(NONE_LEFT, 5.9)
    assert reserve.met(NONE_LEFT, 6.1)
    assert not reserve.met(OSError(errno.ENFILE, "the machine has none"), 6.2)
    assert not reserve.met(NONE_LEFT, 20.0), "another shortage"
    assert reserve.met(NONE_LEFT, 21.0)
    reserve.close()
    reserve.close()
    reserve.over()
    assert not reserve.met(NONE_LEFT, 21.1)
    with socket.socket() as nothing:
        nothing.setblocking(False)
        assert not reserve.accept_with_it(nothing, lambda sock: None)
    assert reserve._fd >= 0
    reserve.close()
