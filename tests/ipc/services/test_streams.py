# SPDX-License-Identifier: Apache-2.0
"""Streams of answers that their client ends before the last value."""

import asyncio
import contextlib
import gc
import itertools
import multiprocessing
import pickle
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ipc import queue_players
from shmnd import ipc
from shmnd.ipc.service import turns, under_way

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0


@contextmanager
def counted() -> Iterator[tuple[ipc.Client, "queue.SimpleQueue[str]"]]:
    """Serve by a function: streams without an end, and other values as they are."""
    ends: queue.SimpleQueue[str] = queue.SimpleQueue()

    def count(name: str) -> Iterator[int]:
        try:
            yield from itertools.count()
        except GeneratorExit:
            ends.put(name)
            raise

    def handler(request: Any) -> Any:
        return count(request.value) if request.value.startswith("count") else request.value

    server = ipc.Server("s")
    thread = threading.Thread(target=server.serve, args=(handler,), daemon=True)
    thread.start()
    try:
        with ipc.Client("s") as client:
            yield client, ends
    finally:
        server.close()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def by_close(client: ipc.Client) -> None:
    stream = client.stream("count")
    assert [next(stream).value for _ in range(3)] == [0, 1, 2]
    stream.close()
    stream.close()
    assert list(stream) == []
    assert "at its end" in repr(stream)


def by_with(client: ipc.Client) -> None:
    with client.stream("count") as stream:
        assert next(stream).value == 0


def by_break(client: ipc.Client) -> None:
    for answer in client.stream("count"):
        if answer.value == 100:
            break


def by_the_collector(client: ipc.Client) -> None:
    kept: list[Any] = [client.stream("count")]
    next(kept[0])
    kept.append(kept)
    del kept
    gc.collect()


def by_a_call(client: ipc.Client) -> None:
    """The first value answers a call; the others have no reader."""
    assert client.call("count", PATIENCE).value == 0


def by_an_async_break(client: ipc.Client) -> None:
    async def main() -> None:
        async for answer in client.stream("count"):
            if answer.value == 100:
                break

    asyncio.run(main())


WAYS = [by_close, by_with, by_break, by_the_collector, by_a_call, by_an_async_break]


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_is_ended(way: Callable[[ipc.Client], None]) -> None:
    with counted() as (client, ends):
        for _ in range(3):
            way(client)
            assert client.call("other", PATIENCE).value == "other"
            assert ends.get(timeout=PATIENCE) == "count"
        while client._ended:  # the server says that they ended
            client._take_answers()


def test_a_server_that_sleeps_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 10 * PATIENCE)
    with counted() as (client, ends):
        stream = client.stream("count")
        while client._answers.qsize() < turns.AHEAD:
            time.sleep(0.01)
        time.sleep(0.1)  # it polls no more
        assert ends.empty()
        stream.close()
        assert ends.get(timeout=PATIENCE) == "count"


def test_a_thread_that_waits_for_a_value_is_woken() -> None:
    with ipc.Server("s"), ipc.Client("s") as client:
        stream = client.stream("never")
        found: list[list[Any]] = []
        threads = [
            threading.Thread(target=lambda: found.append(list(stream)), daemon=True)
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        stream.close()
        for thread in threads:
            thread.join(PATIENCE)
        assert found == [[], []]


def test_a_wait_for_a_value_ends_in_time_and_the_stream_continues() -> None:
    async def first(client: ipc.Client) -> None:
        with pytest.raises(TimeoutError):
            await anext(client.stream("in a loop", timeout=0.01))

    with ipc.Server("s") as server, ipc.Client("s") as client:
        stream = client.stream("late", timeout=0.01)
        with pytest.raises(TimeoutError, match="'s'"):
            next(stream)
        server.receive(PATIENCE).stream([1, 2])
        stream = client.stream("in time", timeout=PATIENCE)
        server.receive(PATIENCE).stream([3, 4])
        assert [answer.value for answer in stream] == [3, 4]
        asyncio.run(first(client))
        with pytest.raises(ValueError, match="timeout"):
            client.stream("never", timeout=-1)


def test_a_stream_that_was_late_gives_its_values_later() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        stream = client.stream("late", timeout=0.01)
        with pytest.raises(TimeoutError):
            next(stream)
        server.receive(PATIENCE).stream([1, 2])
        found = []
        end = time.monotonic() + PATIENCE
        while len(found) < 2 and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                found.append(next(stream).value)
        assert found == [1, 2]


def test_one_that_no_server_has_taken_is_not_handled() -> None:
    seen = []
    with ipc.Client("s") as client, ipc.Server("s") as server:
        client.stream("first").close()
        pending = client.send("second")
        request = server.receive(PATIENCE)
        seen.append(request.value)
        request.respond(None)
        assert pending.result(PATIENCE).value is None
        assert seen == ["second"]
        assert not client._ended


@pytest.mark.parametrize("returned", [False, True])
def test_an_asynchronous_generator_is_closed(returned: bool) -> None:
    ended = threading.Event()

    async def count(request: Any) -> AsyncIterator[int]:
        try:
            for number in itertools.count():
                yield number
        finally:
            await asyncio.sleep(0)
            ended.set()

    async def handler(request: Any) -> Any:
        return count(request)

    async def main() -> None:
        with ipc.Server("s") as server, ipc.Client("s") as client:
            serving = server.serve(handler if returned else count)
            assert serving is not None
            task = asyncio.ensure_future(serving)
            async with asyncio.timeout(PATIENCE):
                stream = client.stream("count")
                assert (await anext(stream)).value == 0
                stream.close()
                with pytest.raises(StopAsyncIteration):
                    await anext(stream)
                while not ended.is_set():
                    await asyncio.sleep(0.01)
            server.close()
            await task

    asyncio.run(main())


def test_another_process_serves_on() -> None:
    child = FORK.Process(target=queue_players.serve_counts, args=("s",), daemon=True)
    child.start()
    try:
        with ipc.Client("s") as client, ipc.Client("s") as other:
            for number in range(200):
                stream = client.stream("count")
                if number % 3:
                    next(stream)
                stream.close()
                assert other.call(number, PATIENCE).value == number
    finally:
        child.kill()
        child.join()


def test_numbers_of_streams_that_were_ended_are_passed_over() -> None:
    with ipc.Client("s", buffer=64) as client:
        first = client.stream(None)
        number = first._pending._number
        first.close()
        client._numbers = itertools.count(number + 2047)
        assert [client.send(None)._number for _ in range(3)] == [
            number + 2047, number + 2049, number + 2050
        ]  # fmt: skip
        core = client._answers._core
        assert core.stream_ended(core.me, number)
        assert core.stream_ended(core.me, number + 2048)
        assert not core.stream_ended(core.me, number + 1)
        assert not core.stream_ended(1 << 40, number)
        client._unmark(number)
        assert not core.stream_ended(core.me, number)


def test_the_oldest_of_too_many_ended_streams_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from shmnd.ipc.service import answers

    monkeypatch.setattr(answers, "_MOST_ENDED", 3)
    with ipc.Client("s", buffer=64) as client:
        streams = [client.stream(None) for _ in range(5)]
        numbers = [stream._pending._number for stream in streams]
        for stream in streams:
            stream.close()
        assert list(client._ended.values()) == numbers[2:]
        core = client._answers._core
        assert [core.stream_ended(core.me, each) for each in numbers] == [False] * 2 + [True] * 3


# -- requests that cannot be read, and waits that fail --


class Raises:
    """Raises an exception where it is unpickled."""

    def __init__(self, exc: type[Exception]) -> None:
        self.exc = exc

    def __reduce__(self) -> Any:
        return queue_players.raise_, (self.exc,)


@pytest.mark.parametrize(
    "exc", [ipc.Closed, queue.Empty, ValueError, TimeoutError, pickle.UnpicklingError, KeyError]
)
def test_a_request_that_cannot_be_read_ends_itself_alone(exc: type[Exception]) -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        client.send(Raises(exc))
        with pytest.raises(exc, match="unpickled"):
            server.receive(PATIENCE)
        client.send(Raises(exc))
        pending = client.send("good")
        with pytest.warns(RuntimeWarning, match=rf"could not be read: {exc.__name__}"):
            request = next(iter(server))
        request.respond(request.value)
        assert pending.result(PATIENCE).value == "good"


@pytest.mark.parametrize("arrays", [False, True])
def test_the_client_of_one_that_cannot_be_read_learns_it_at_once(
    arrays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_way, "UNCLAIMED", 10 * PATIENCE)
    value = Raises(KeyError)
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send([np.zeros(100_000), value, -(1 << 70)] if arrays else value)
        with pytest.raises(KeyError, match="unpickled") as told:
            server.receive(PATIENCE)
        assert any("cannot be unpickled" in note for note in told.value.__notes__)
        with pytest.raises(ipc.RemoteError, match="cannot unpickle the request: KeyError"):
            pending.result(PATIENCE)
        good = client.send("good")
        server.receive(PATIENCE).respond(1)
        assert good.result(PATIENCE).value == 1


@pytest.mark.parametrize("of_tasks", [True, False])
def test_one_that_no_server_claims_is_lost_beside_a_call_that_waits(
    of_tasks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That call takes the answers of all; its own request was claimed, and it sleeps long."""
    monkeypatch.setattr(under_way, "UNCLAIMED", 0.3)
    with ipc.Server("s") as server, ipc.Client("s") as client:

        async def in_one_loop() -> None:
            waiting = asyncio.create_task(client.acall("long", PATIENCE))
            request = await server.areceive(PATIENCE)
            await asyncio.sleep(1.0)
            lost = asyncio.create_task(client.acall("never", PATIENCE))
            await server._requests.aget(PATIENCE)
            with pytest.raises(ipc.PeerLost):
                await lost
            request.respond("answer")
            assert (await waiting).value == "answer"

        def in_threads() -> None:
            with ThreadPoolExecutor() as pool:
                waiting = pool.submit(client.call, "long", PATIENCE)
                request = server.receive(PATIENCE)
                time.sleep(1.0)
                lost = pool.submit(client.call, "never", PATIENCE)
                server._requests.get(timeout=PATIENCE)
                with pytest.raises(ipc.PeerLost):
                    lost.result(PATIENCE)
                request.respond("answer")
                assert waiting.result(PATIENCE).value == "answer"

        if of_tasks:
            asyncio.run(in_one_loop())
        else:
            in_threads()


def test_requests_with_forged_numbers_are_left_out() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        for number, member in ((-1, 0), (0, 0), (1 << 63, 0), (1, -1)):
            client._requests.put((*client._where, number, member, "forged"))
        client._requests.put((*client._where, 77, 1 << 40, "no such member"))
        pending = client.send("good")
        assert server.receive(PATIENCE).value == "no such member"
        server.receive(PATIENCE).respond(1)
        assert pending.result(PATIENCE).value == 1


def test_a_failed_wait_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with ipc.Server("s") as server:

        def fails(*_: object) -> None:
            raise OSError(24, "too many open files")

        failing = type("Q", (), {"_get_into": fails, "close": fails})
        monkeypatch.setattr(server, "_requests", failing())
        with pytest.raises(OSError, match="too many open files"):
            next(iter(server))
        monkeypatch.undo()
