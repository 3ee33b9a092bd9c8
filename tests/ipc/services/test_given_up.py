# SPDX-License-Identifier: Apache-2.0
"""Requests whose answers have no taker any more are not computed."""

import asyncio
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shmnd import ipc
from shmnd.ipc.service import streaming as of_streams
from shmnd.ipc.service import turns as of_turns
from shmnd.ipc.service.turns import StreamTurns

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0


def _calls(client: ipc.Client) -> None:
    client.call("given up", timeout=0.01)


def _acalls(client: ipc.Client) -> None:
    asyncio.run(client.acall("given up", timeout=0.01))


def _cancelled(client: ipc.Client) -> None:
    async def main() -> None:
        async with asyncio.timeout(0.01):
            await client.acall("given up")

    asyncio.run(main())


@pytest.mark.parametrize("way", [_calls, _acalls, _cancelled])
def test_a_call_that_timed_out_is_not_computed(way: Callable[[ipc.Client], None]) -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        with pytest.raises(TimeoutError):
            way(client)
        pending = client.send("next")
        request = server.receive(PATIENCE)
        assert request.value == "next"
        request.respond(1)
        assert pending.result(PATIENCE).value == 1
        assert client._ended == {}  # the server has said that it leaves the request out


def test_an_interrupted_call_is_not_computed() -> None:
    class Alarm(Exception):
        pass

    def handle(number: int, frame: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with ipc.Server("s") as server, ipc.Client("s") as client:

            def interrupt() -> None:
                while server._requests.empty():
                    time.sleep(0.001)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(Alarm):
                client.call("given up", timeout=PATIENCE)
            thread.join()
            client.send("next")
            request = server.receive(PATIENCE)
            assert request.value == "next"
            request.respond(1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_answer_that_comes_too_late() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send(1)
        request = server.receive(PATIENCE)
        client._end_stream(pending)  # as a call that ends does
        assert not request.answered
        request.respond("late")
        pending = client.send(2)
        server.receive(PATIENCE).respond("in time")
        assert pending.result(PATIENCE).value == "in time"
        assert client._ended == {}


def test_requests_without_a_waiter_are_computed() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        client.send("told")
        pending = client.send("asked")
        with pytest.raises(TimeoutError):
            pending.result(0.01)  # it may ask again
        for value in ("told", "asked"):
            request = server.receive(PATIENCE)
            assert request.value == value
            request.respond(value)
        assert pending.result(PATIENCE).value == "asked"


def _asks(how: str) -> None:
    client = ipc.Client("s")
    client.call("known", timeout=PATIENCE)
    client.send("given up")
    if how == "closed":
        client.close()
    os._exit(0)


@pytest.mark.parametrize("how", ["closed", "died"])
def test_a_client_that_is_known_and_has_gone(how: str) -> None:
    with ipc.Server("s") as server:
        child = FORK.Process(target=_asks, args=(how,))
        child.start()
        server.receive(PATIENCE).respond(0)
        child.join()
        with ipc.Client("s") as client:
            client.send("next")
            request = server.receive(PATIENCE)
            assert request.value == "next"
            request.respond(1)
        assert len(server._clients) == 1  # the other one was forgotten


def _closes(way: str, closed: Any, over: Any) -> None:
    """Close a client with a request that the server has, and one that it has not; and live on."""
    with ipc.Client("s") as client:
        kept = client.send("under way") if way == "kept" else None
        if kept is None:
            client.send("under way")
        assert client.call("last of all", timeout=PATIENCE).value == "taken"
        client.send("given up")
    closed.set()
    over.wait(PATIENCE)
    del kept


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("way", ["kept", "dropped"])
def test_a_stream_of_a_client_that_was_closed_and_that_has_read_nothing(
    way: str, by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process lives on, and so does the object."""
    monkeypatch.setattr(of_streams, "PATIENCE", PATIENCE)
    monkeypatch.setattr(of_turns, "PATIENCE", PATIENCE)
    ended = threading.Event()
    closed, over = FORK.Event(), FORK.Event()

    def values() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            ended.set()

    with ipc.Server("s") as server:
        child = FORK.Process(target=_closes, args=(way, closed, over))
        child.start()
        stream = server.receive(PATIENCE)
        server.receive(PATIENCE).respond("taken")
        if by_hand:
            thread = threading.Thread(target=stream.stream, args=(values(),))
        else:
            turns = StreamTurns()
            turns.begin(stream, values())
            thread = threading.Thread(target=_take_turns, args=(server, turns))
        thread.start()
        assert closed.wait(PATIENCE)
        assert ended.wait(PATIENCE / 2)
        thread.join(PATIENCE)
        with ipc.Client("s") as client:
            client.send("next")
            request = server.receive(PATIENCE)
            assert request.value == "next"  # the other one is not computed
            request.respond(1)
        over.set()
        child.join(PATIENCE)
        assert child.exitcode == 0


def _take_turns(server: ipc.Server, turns: StreamTurns) -> None:
    while turns:
        if not turns.take() and turns:
            turns.rest(server._requests)
