# SPDX-License-Identifier: Apache-2.0
"""Streams of a server that serves by a function: one slow reader does not stop the others."""

import itertools
import multiprocessing
import os
import queue
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ipc import queue_players
from shmnd import ipc
from shmnd.ipc.service import turns

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0


class Counting:
    """A handler: streams of numbers for requests that are whole numbers, others as they are."""

    def __init__(self) -> None:
        self.ends: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.last: dict[int, int] = {}

    def __call__(self, request: Any) -> Any:
        return self.count(request.value) if isinstance(request.value, int) else request.value

    def count(self, first: int) -> Iterator[int]:
        try:
            for number in itertools.count(first):
                self.last[first] = number
                yield number
        finally:
            self.ends.put(first)


@contextmanager
def served(handler: Callable[[Any], Any]) -> Iterator[ipc.Server]:
    server = ipc.Server("s")
    thread = threading.Thread(target=server.serve, args=(handler,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def until_ahead(client: ipc.Client) -> None:
    while client._answers.qsize() < turns.AHEAD:
        time.sleep(0.001)


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_one_that_reads_nothing_does_not_stop_others(pause: float) -> None:
    handler = Counting()
    with served(handler), ipc.Client("s") as slow, ipc.Client("s") as other:
        kept = slow.stream(0)
        until_ahead(slow)
        time.sleep(pause)  # after it the server sleeps at its bells
        assert other.call("first", PATIENCE).value == "first"
        with other.stream(1000) as values:
            assert [next(values).value for _ in range(500)] == list(range(1000, 1500))
        assert other.call("second", PATIENCE).value == "second"
        assert handler.last[0] < turns.AHEAD
        assert [next(kept).value for _ in range(1000)] == list(range(1000))
        kept.close()


def test_one_that_reads_as_fast_as_values_come_does_not_stop_others() -> None:
    with served(Counting()), ipc.Client("s") as fast, ipc.Client("s") as other:
        stop = threading.Event()

        def read() -> None:
            with fast.stream(0) as values:
                for expected, answer in enumerate(values):
                    assert answer.value == expected
                    if stop.is_set():
                        break

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for number in range(20):
                assert other.call(str(number), PATIENCE).value == str(number)
        finally:
            stop.set()
            thread.join()


def test_a_client_calls_while_it_has_streams_open() -> None:
    with served(Counting()), ipc.Client("s") as client:
        streams = [client.stream(1000 * each) for each in range(4)]
        for number in range(10):
            assert client.call(str(number), PATIENCE).value == str(number)
        for number in range(200):
            assert [next(each).value for each in streams] == [
                1000 * each + number for each in range(4)
            ]


def test_a_reader_that_is_killed_ends_its_stream_alone() -> None:
    handler = Counting()
    with served(handler), ipc.Client("s") as client:
        kept = client.stream(7)
        ready, child_ready = FORK.Pipe(duplex=False)
        child = FORK.Process(target=queue_players.open_a_stream, args=("s", 0, child_ready))
        child.start()
        ready.recv()
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert handler.ends.get(timeout=PATIENCE) == 0
        assert [next(kept).value for _ in range(300)] == list(range(7, 307))
        assert client.call("other", PATIENCE).value == "other"


def test_a_client_that_is_closed_in_the_process_of_the_server_is_gone() -> None:
    handler = Counting()
    with served(handler):
        client = ipc.Client("s")
        kept = client.stream(0)
        until_ahead(client)
        client.close()
        assert handler.ends.get(timeout=PATIENCE) == 0
        del kept


def test_the_end_of_the_server_ends_the_streams() -> None:
    """One that waits for its client, and one that has only a few values left."""
    handler = Counting()
    few = threading.Event()

    def handle(request: Any) -> Any:
        if request.value == "few":
            return (few.wait(PATIENCE) and number for number in range(10))
        return handler(request)

    with served(handle) as server, ipc.Client("s") as slow, ipc.Client("s") as other:
        kept = slow.stream(0)
        until_ahead(slow)
        last = other.stream("few")
        assert server.name == "s"
        while server.ready():
            time.sleep(0.001)
        server.close()
        few.set()
        assert handler.ends.get(timeout=PATIENCE) == 0
        assert [each.value for each in last] == list(range(10))
        count = handler.last[0] + 1
        assert [next(kept).value for _ in range(count)] == list(range(count))
        with pytest.raises(ipc.RemoteError, match="was closed before the last value"):
            next(kept)


def test_an_interrupted_server_ends_its_streams() -> None:
    handler = Counting()

    def handle(request: Any) -> Any:
        if request.value == "stop":
            raise KeyboardInterrupt
        return handler(request)

    with ipc.Server("s") as server, ipc.Client("s") as client:
        streams = [client.stream(0), client.stream(1000)]
        last = client.send("stop")
        with pytest.raises(KeyboardInterrupt):
            server.serve(handle)
        assert {handler.ends.get(timeout=PATIENCE) for _ in range(2)} == {0, 1000}
        for stream in streams:
            with pytest.raises(ipc.RemoteError, match="KeyboardInterrupt"):
                list(stream)
        with pytest.raises(ipc.RemoteError, match="KeyboardInterrupt"):
            last.result(PATIENCE)


def test_a_generator_that_fails_ends_its_stream_alone() -> None:
    def halves(first: int) -> Iterator[float]:
        for number in itertools.count(first):
            yield 1 / (10 - number)

    with served(lambda request: halves(request.value)), ipc.Client("s") as client:
        good, bad = client.stream(20), client.stream(0)
        assert len([next(bad) for _ in range(10)]) == 10
        with pytest.raises(ZeroDivisionError):
            next(bad)
        assert [next(good).value for _ in range(2)] == [-1 / 10, -1 / 11]


def test_one_client_has_so_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST", 3)
    with served(Counting()), ipc.Client("s") as client, ipc.Client("s") as other:
        streams = [client.stream(number) for number in range(4)]
        with pytest.raises(RuntimeError, match="3 streams of this client"):
            next(streams[3])
        assert [next(each).value for each in streams[:3]] == [0, 1, 2]
        assert next(other.stream(5)).value == 5
        streams[0].close()
        while True:  # until the server has seen that
            stream = client.stream(9)
            try:
                assert next(stream).value == 9
                break
            except RuntimeError:
                pass


def test_without_a_free_descriptor_the_server_polls() -> None:
    with served(Counting()), ipc.Client("s") as slow, ipc.Client("s") as other:
        assert other.call("before", PATIENCE).value == "before"
        kept = slow.stream(0)
        until_ahead(slow)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            time.sleep(0.1)
            assert other.call("there", PATIENCE).value == "there"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert [next(kept).value for _ in range(300)] == list(range(300))
