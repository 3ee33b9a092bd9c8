# SPDX-License-Identifier: Apache-2.0
"""Signal handlers that raise what the calls of messages raise themselves: it comes out unchanged.

A handler of SIGALRM that ends a call raises TimeoutError by custom. That is the program's own, and
no time-out of the call that it interrupts.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

import shmnd
from processes.messages.kit import LIMIT, Pair, pattern
from shmnd.connecting import _Attempt
from shmnd.waiter import Waiter


class Handled(TimeoutError, EOFError):
    """What the handler raises."""


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def handle(number: int, frame: object) -> None:
        raise Handled

    before = signal.signal(signal.SIGALRM, handle)
    yield
    signal.signal(signal.SIGALRM, before)


def alarming(*_: object) -> bool:
    """Stand for a step of a call that the handler interrupts."""
    signal.raise_signal(signal.SIGALRM)
    return False


def each(messages: shmnd.Connection) -> None:
    for _ in messages:
        pass


async def each_in_loop(messages: shmnd.Connection) -> None:
    async for _ in messages:
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda near: asyncio.run(near.asend_bytes(pattern(100_000), LIMIT)),
        lambda near: asyncio.run(near.arecv_bytes(LIMIT)),
        lambda near: asyncio.run(each_in_loop(near)),
        lambda near: near.send_bytes(pattern(100_000), LIMIT),
        lambda near: near.recv_bytes(LIMIT, maxlength=100),
        lambda near: near.poll(LIMIT),
        each,
    ],
    ids=["asend_bytes", "arecv_bytes", "async for", "send_bytes", "recv_bytes", "poll", "for"],
)
def test_a_connection_raises_the_exception_of_the_handler(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, call: Callable[[shmnd.Connection], object]
) -> None:
    near, far = pair
    monkeypatch.setattr(shmnd.Connection, "_pushed", alarming)
    monkeypatch.setattr(shmnd.Connection, "_arrived", alarming)
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident, 14))
    if call is each:
        timer.start()  # it waits in compiled code
    with pytest.raises(Handled):
        call(near)
    monkeypatch.undo()
    if call is each:
        timer.join()
    near.send_bytes(b"afterwards", LIMIT)
    assert far.recv_bytes(LIMIT) == b"afterwards"


@pytest.mark.parametrize(
    "call",
    [
        lambda server: server.accept(LIMIT),
        lambda server: asyncio.run(server.aaccept(LIMIT)),
    ],
    ids=["accept", "aaccept"],
)
def test_a_server_raises_the_exception_of_the_handler(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[shmnd.Server], object]
) -> None:
    with shmnd.listen() as server:
        monkeypatch.setattr(shmnd.Server, "_is_news", alarming)
        with pytest.raises(Handled):
            call(server)
        monkeypatch.undo()


@pytest.mark.parametrize(
    "call",
    [
        lambda address: shmnd.connect(address, timeout=LIMIT),
        lambda address: asyncio.run(shmnd.aconnect(address, timeout=LIMIT)),
    ],
    ids=["connect", "aconnect"],
)
def test_connect_raises_the_exception_of_the_handler(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[tuple[str, int]], object]
) -> None:
    with shmnd.listen() as server:
        accepting = threading.Thread(target=lambda: next(iter(server), None))
        accepting.start()
        monkeypatch.setattr(_Attempt, "connection", alarming)
        with pytest.raises(Handled):
            call(server.address)
        monkeypatch.undo()
        server.close()
        accepting.join(LIMIT)


def test_a_waiter_in_a_loop_raises_the_exception_of_the_handler() -> None:
    handled = pytest.raises(Handled)
    with shmnd.open_adapter() as adapter, Waiter(adapter, alarming) as waiter, handled:
        asyncio.run(waiter.wait_in_loop(LIMIT))
