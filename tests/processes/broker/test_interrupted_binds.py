# SPDX-License-Identifier: Apache-2.0
"""Binds that fail, and calls of ports and listeners that a signal handler interrupts."""

import functools
from pathlib import Path
from typing import Any

import pytest

import shmnd
import shmnd.connector
import shmnd.handshake.port
import shmnd.listener
import shmnd.runtime.broker.exchange
from interrupting import Alarm
from processes.kit import PATIENCE
from shmnd import NdError, Status
from spi.harness import nd_error
from stepping import stepped

KINDS = ["listener", "connector"]
FILES = {
    str(Path(str(module.__file__)))
    for module in (
        shmnd.connector,
        shmnd.listener,
        shmnd.handshake.port,
        shmnd.runtime.broker.exchange,
    )
}
"""Where an interruption may find a port bound that has no owner yet."""


def made(adapter: shmnd.Adapter, kind: str) -> Any:
    return getattr(adapter, f"create_{kind}")()


def bound_again(obj: Any, address: tuple[str, int]) -> None:
    """Bind what may be bound by now."""
    try:
        obj.bind(address)
    except NdError as exc:
        if exc.status is not Status.ADDRESS_ALREADY_ASSOCIATED:
            raise


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_port_is_free_again_after_a_bind_that_was_interrupted(kind: str) -> None:
    """The object may bind it once more, and another one when it is closed."""
    address = "127.0.0.1", 5000
    with shmnd.open_adapter() as adapter:
        followed = adapter._engine._objects
        before, at, place = len(followed), 0, "none yet"
        while place:
            obj = made(adapter, kind)
            place = stepped(at, functools.partial(obj.bind, address), FILES.__contains__, Alarm)
            bound_again(obj, address)
            assert len(followed) == before + 1, place
            obj.close()
            assert len(followed) == before, place
            with adapter.create_listener() as other:
                other.bind(address)
            at += 1
    assert at > 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_bind_that_is_refused_leaves_no_record(kind: str) -> None:
    with shmnd.open_adapter() as adapter, adapter.create_listener() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        obj = made(adapter, kind)
        followed = adapter._engine._objects
        before = len(followed)
        for _ in range(3):
            with nd_error(Status.SHARING_VIOLATION):
                obj.bind(holder.get_local_address())
            with nd_error(Status.INVALID_ADDRESS):
                obj.bind(("10.1.2.3", 1))
            assert len(followed) == before
        obj.bind(("127.0.0.1", 0))
        assert len(followed) == before + 1
        obj.close()
        assert len(followed) == before


def serve(listener: shmnd.Listener, adapter: shmnd.Adapter) -> None:
    """Take a request of the listener's, and see its Connect end."""
    cq = adapter.create_completion_queue(4)
    with adapter.create_connector() as taker, adapter.create_connector() as asker:
        request = listener.get_connection_request(taker)
        connect = asker.connect(adapter.create_queue_pair(cq, cq), listener.get_local_address())
        request.result(PATIENCE)
        taker.accept(adapter.create_queue_pair(cq, cq))
        connect.result(PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["listen", "get_connection_request"])
def test_a_listener_takes_the_next_request_after_a_call_that_was_interrupted(what: str) -> None:
    """The call may be made again, and no request goes to a connector that waits for none."""
    at, place = 0, "none yet"
    with shmnd.open_adapter() as adapter:
        while place:
            with adapter.create_listener() as listener, adapter.create_connector() as connector:
                listener.bind(("127.0.0.1", 0))
                arguments: tuple[Any, ...] = ()
                if what == "get_connection_request":
                    listener.listen()
                    arguments = (connector,)
                call = functools.partial(getattr(listener, what), *arguments)
                place = stepped(at, call, FILES.__contains__, Alarm)
                if what == "listen" and not listener._listening:
                    listener.listen()
                if connector._request is None:
                    assert not listener._pending, place
                    serve(listener, adapter)
                else:
                    assert connector._request[0] in listener._pending, place
            at += 1
    assert at > 10


def test_a_request_does_not_take_the_offer_of_one_that_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The peer of the interrupted one is refused, and no other peer is."""

    def interrupt(step: str) -> None:
        if step == "request-armed":
            raise Alarm

    with shmnd.open_adapter() as adapter, adapter.create_listener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taker, early, late = (adapter.create_connector() for _ in range(3))
        cq = adapter.create_completion_queue(8)
        pairs = [adapter.create_queue_pair(cq, cq) for _ in range(3)]
        first = early.connect(pairs[0], listener.get_local_address())
        with monkeypatch.context() as patch:
            patch.setattr("shmnd.common.steps.reached", interrupt)
            with pytest.raises(Alarm):
                listener.get_connection_request(taker)
        request = listener.get_connection_request(taker)
        second = late.connect(pairs[1], listener.get_local_address())
        with nd_error(Status.CONNECTION_REFUSED):
            first.result(PATIENCE)
        request.result(PATIENCE)
        taker.accept(pairs[2])
        second.result(PATIENCE)
