# SPDX-License-Identifier: Apache-2.0
"""Calls that wait while another thread or task closes the last object of their adapter."""

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any

import pytest

import shmnd
from processes.messages.kit import LIMIT, Address, MakePeer, pattern
from shmnd import Status, connecting

Waited = Callable[[shmnd.Connection], object]
Accepting = Callable[[shmnd.Server], Awaitable[object]]


def deaf(address: Address, pipe: Pipe) -> None:
    """Connect and receive nothing until told."""
    with shmnd.connect(address):
        pipe.recv()


async def each_in_loop(server: shmnd.Server) -> list[shmnd.Connection]:
    return [connection async for connection in server]


def closing(wait: Callable[[], object], close: Callable[[], None]) -> object:
    """Close in this thread what another one waits for; return what that one returned or raised."""
    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(wait())
        except Exception as exc:
            ended.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.1)  # it sleeps by then: where it does not, the close is found without a wait
    close()
    thread.join(LIMIT)
    return ended.pop()


@pytest.mark.parametrize(
    "wait",
    [
        lambda near: near.send_bytes(pattern(10_000_000)),
        lambda near: near.recv_bytes(),
        lambda near: near.recv_bytes(maxlength=1),
        lambda near: near.poll(None),
        lambda near: asyncio.run(near.asend_bytes(pattern(10_000_000))),
        lambda near: asyncio.run(near.arecv_bytes()),
    ],
    ids=["send_bytes", "recv_bytes", "maxlength", "poll", "asend_bytes", "arecv_bytes"],
)
def test_a_call_reports_that_its_connection_was_closed(peer_of: MakePeer, wait: Waited) -> None:
    peer = peer_of(deaf)
    peer.server.close()  # the connection is the last object of its adapter
    near = peer.connection
    said = closing(lambda: wait(near), near.close)
    assert isinstance(said, OSError), said
    assert "the connection is closed" in str(said)
    peer.pipe.send("end")


@pytest.mark.parametrize("way", [shmnd.Server.accept, list])
def test_a_thread_that_accepts_learns_that_the_server_was_closed(
    way: Callable[[shmnd.Server], object],
) -> None:
    for _ in range(5):  # which of two causes it finds first is up to the threads
        server = shmnd.listen()
        said = closing(partial(way, server), server.close)
        assert said == [] if way is list else isinstance(said, OSError), said


@pytest.mark.parametrize("way", [shmnd.Server.aaccept, each_in_loop])
def test_a_task_that_accepts_learns_that_the_server_was_closed(way: Accepting) -> None:
    async def work() -> object:
        server = shmnd.listen()
        accepting = asyncio.ensure_future(way(server))
        await asyncio.sleep(0.1)
        server.close()
        return (await asyncio.gather(accepting, return_exceptions=True))[0]

    said = asyncio.run(work())
    assert said == [] if way is each_in_loop else isinstance(said, OSError), said


class Arriving:
    """A connection that is complete just as another thread closes the server."""

    until = math.inf

    def __init__(self, close: Callable[[], None]) -> None:
        self.overlapped = self.ends = self
        self.close_server = close
        self.closed = 0
        self.made = [self]

    @property
    def status(self) -> Status:
        thread = threading.Thread(target=self.close_server)
        thread.start()
        thread.join(LIMIT)
        return Status.SUCCESS

    def is_over(self, now: float) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1


def test_a_connection_that_is_complete_as_the_server_is_closed_is_ended_once() -> None:
    server = shmnd.listen()
    arriving: Any = Arriving(server.close)
    server._arrivals[id(arriving)] = arriving
    with pytest.raises(OSError, match="the server is closed"):
        server.accept(LIMIT)
    assert arriving.closed == 1


def test_a_close_whose_last_connection_another_thread_takes_ends_well() -> None:
    class Taken(dict[int, Any]):
        """A table that another thread empties between any two steps of this one."""

        def __bool__(self) -> bool:
            return True

    server = shmnd.listen()
    server._arrivals = Taken()
    server.close()
    assert server.closed


@pytest.mark.parametrize("waits", ["connect", "aconnect"])
def test_a_server_that_closes_before_a_connection_is_complete_refuses_it(
    waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that tries again where nothing listens does so then, too."""

    def ask(address: tuple[str, int]) -> None:
        if waits == "connect":
            shmnd.connect(address, timeout=LIMIT)
        else:
            asyncio.run(shmnd.aconnect(address, timeout=LIMIT))

    def complete_late(attempt: Any, ends: Any) -> None:
        server.close()
        complete(attempt, ends)

    complete = connecting._Attempt._complete
    monkeypatch.setattr(connecting._Attempt, "_complete", complete_late)
    with shmnd.listen() as server, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, server.address)
        with pytest.raises(OSError, match="the server is closed"):
            server.accept(LIMIT)
        with pytest.raises(ConnectionRefusedError, match=f"^{waits}: the server at .* was closed"):
            asking.result(LIMIT)
