# SPDX-License-Identifier: Apache-2.0
"""A handler of a signal that raises within `Server.accept` costs no connection that is complete."""

import itertools
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

import shmnd
from interrupting import Alarm, inside, interrupted
from processes.messages.kit import LIMIT, accepted_unreturned
from shmnd.common import interruption
from shmnd.common.interruption import may_be_interrupted
from shmnd.status import Status


@pytest.fixture
def server() -> Iterator[shmnd.Server]:
    with shmnd.listen() as server:
        yield server


def accept_into(got: list[shmnd.Connection], server: shmnd.Server) -> None:
    """Accept in one step for handlers: the connection is in the list, or was not returned."""
    got.extend(map(server.accept, (LIMIT,)))


def test_a_connection_that_is_complete_outlives_a_handler_that_raises(
    server: shmnd.Server,
) -> None:
    within = inside(shmnd)
    with ThreadPoolExecutor(1) as pool:
        for at in range(10_000):
            with accepted_unreturned(server, pool) as near:
                got: list[shmnd.Connection] = []
                came = interrupted(at, partial(accept_into, got, server), within)
                with got[0] if got else server.accept(LIMIT) as far:
                    near.send_bytes(b"%d" % at, LIMIT)
                    assert far.recv_bytes(LIMIT) == b"%d" % at
            if not came:
                break
    assert 20 < at < 9_999, "it came to every place of the call"
    assert len(server._shared._users) == 1, "none is counted twice, or not at all"


def test_a_close_ends_a_connection_that_was_made_and_not_returned(server: shmnd.Server) -> None:
    with ThreadPoolExecutor(1) as pool, accepted_unreturned(server, pool) as near:
        arrival, _ = server._poll("Server.accept")
        assert arrival is not None
        assert arrival.made[0].connected
        server.close()
        with pytest.raises(EOFError):
            near.recv_bytes(LIMIT)
        assert arrival.made[0].closed
        assert len(server._shared._users) == 0


SOURCES = ("server.py", "connection.py", "endpoints.py", "broker_calls.py", "weak.py")
"""The files that accept a connection, and make it."""


@pytest.fixture
def handled() -> Iterator[None]:
    """A program that has set a handler."""
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("handled")
def test_a_thread_answers_where_a_handler_may_raise(
    server: shmnd.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert may_be_interrupted()
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(may_be_interrupted).result(LIMIT), "handlers run in the main thread"
        answering: list[int] = []
        answer = server._answer

        def noted() -> None:
            answering.append(threading.get_ident())
            answer()

        monkeypatch.setattr(server, "_answer", noted)
        connecting = pool.submit(shmnd.connect, server.address, timeout=LIMIT)
        with server.accept(LIMIT), connecting.result(LIMIT):
            assert answering
            assert threading.get_ident() not in answering


def test_no_handler_of_the_program_may_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "_SIGNALS", (signal.SIGUSR1,))  # the suite has one of SIGALRM
    assert not may_be_interrupted()


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("kind", [Alarm, TimeoutError])
def test_a_peer_that_connects_notices_no_handler_that_raises(
    server: shmnd.Server, kind: type[BaseException]
) -> None:
    """As with a socket, whose `accept` an alarm interrupts: the connection waits for the next."""

    def ask(number: int) -> bytes:
        with shmnd.connect(server.address, timeout=LIMIT) as near:
            near.send_bytes(b"%d" % number, LIMIT)
            return near.recv_bytes(LIMIT)

    whole = 0
    with ThreadPoolExecutor(1) as pool:
        for at in itertools.count():
            asking = pool.submit(ask, at)
            got: list[shmnd.Connection] = []
            accepting = partial(accept_into, got, server)
            whole += not interrupted(at, accepting, lambda path: path.endswith(SOURCES), kind)
            with got[0] if got else server.accept(LIMIT) as far:
                far.send_bytes(far.recv_bytes(LIMIT), LIMIT)
            assert asking.result(LIMIT) == b"%d" % at
            if whole == 5:
                break
    assert at > 20, "there were places to interrupt"
    assert len(server._shared._users) == 1, "the server's connections have closed"


def test_a_refusal_that_another_thread_has_taken_is_not_lost(
    server: shmnd.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    server._arrivals = {7: SimpleNamespace(close=lambda: closed.append(7))}
    monkeypatch.setattr(server, "_end_refused", lambda: None)  # the other one is about to close it
    server._refuse([7])
    monkeypatch.undo()
    server._refuse([7])
    assert closed == [7]
    assert not server._refused


def test_a_peer_that_gave_up_leaves_nothing(server: shmnd.Server) -> None:
    """The next call closes its queues, where a handler raised within the first one."""
    within = inside(shmnd)
    with ThreadPoolExecutor(1) as pool:
        for at in itertools.count():
            with accepted_unreturned(server, pool):
                (arrival,) = server._arrivals.values()
                given_up = SimpleNamespace(status=Status.CANCELED)
                failed = arrival._replace(overlapped=given_up, made=[])
                server._arrivals = {id(failed): failed}
                came = interrupted(at, server._complete, within)
                server._complete()
                assert failed.ends.cq._closed, f"interrupted at {at}"
                assert not server._arrivals
            if not came:
                break
    assert at > 5, "there were places to interrupt"
