# SPDX-License-Identifier: Apache-2.0
"""A signal handler that raises in connect and accept costs nothing but the call."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import shmnd
from processes.kit import PATIENCE
from processes.messages.kit import accepted_unreturned
from shmnd.broker.session import Session
from shmnd.messaging.endpoints import Ends
from shmnd.runtime.broker.broker_calls import BrokerCall
from shmnd.status import NdTimeoutError, Status

pytestmark = pytest.mark.slow


class Alarm(Exception):
    pass


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Have a handler raise in the main thread at the n-th call of a method, once."""
    kept = signal.getsignal(signal.SIGUSR1)

    def at(owner: Any, name: str, number: int, exception: BaseException) -> None:
        def handler(*_: object) -> None:
            raise exception

        signal.signal(signal.SIGUSR1, handler)
        method = getattr(owner, name)
        left = number

        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal left
            if threading.current_thread() is threading.main_thread():
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGUSR1)
            return method(*args, **options)

        monkeypatch.setattr(owner, name, wrapped)

    yield at
    signal.signal(signal.SIGUSR1, kept)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_undecided_connection_survives_an_interrupted_connect(
    signalled: Callable[..., None], number: int
) -> None:
    with shmnd.listen() as server, shmnd.open_adapter() as here, shmnd.open_adapter() as there:
        listener = there.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        cq = here.create_completion_queue(4)
        connector = here.create_connector()
        undecided = connector.connect(
            here.create_queue_pair(cq, cq), listener.get_local_address(), 1, 1
        )
        signalled(Session, "_wait", number, Alarm())
        with pytest.raises(Alarm):
            shmnd.connect(server.address, timeout=PATIENCE)
        taker = there.create_connector()
        listener.get_connection_request(taker).result(PATIENCE)
        assert undecided.status == Status.PENDING


def accepted_in_steps(server: shmnd.Server) -> shmnd.Connection:
    """Accept without a wait; this thread itself answers then."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return server.accept(0)
        except TimeoutError:
            assert time.monotonic() < deadline, "nothing connects"


@pytest.mark.parametrize("function", ["made", "agree"])
def test_a_client_outlives_an_interrupted_accept(
    signalled: Callable[..., None], function: str
) -> None:
    with shmnd.listen() as server, ThreadPoolExecutor(1) as pool:
        connecting = pool.submit(shmnd.connect, server.address, timeout=PATIENCE)
        signalled(Ends, function, 1, Alarm())
        with pytest.raises(Alarm):
            accepted_in_steps(server)
        with server.accept(PATIENCE), connecting.result(PATIENCE):
            pass


def test_a_connection_that_is_complete_outlives_the_failure_of_another_answer() -> None:
    def fail() -> None:
        raise Alarm

    with shmnd.listen() as server, ThreadPoolExecutor(1) as pool:
        near = accepted_unreturned(server, pool)
        server._answering = call = BrokerCall(fail)
        call.run()
        with pytest.raises(Alarm):
            server.accept(PATIENCE)
        with near, server.accept(PATIENCE) as far:
            near.send_bytes(b"here")
            assert far.recv_bytes(PATIENCE) == b"here"


def test_the_time_out_of_a_handler_is_not_a_time_out_of_the_call(
    signalled: Callable[..., None],
) -> None:
    own = NdTimeoutError(Status.IO_TIMEOUT, "the program's own")
    with shmnd.listen() as server:
        signalled(Session, "_wait", 1, own)
        with pytest.raises(NdTimeoutError, match="the program's own"):
            shmnd.connect(server.address, timeout=PATIENCE)
