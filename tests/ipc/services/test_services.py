# SPDX-License-Identifier: Apache-2.0
"""Services: requests and answers, many at once, streamed, failed, and with servers that die."""

import asyncio
import contextlib
import copy
import gc
import inspect
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ipc import queue_players
from shmnd import ipc

FORK = multiprocessing.get_context("fork")


@contextmanager
def served(handler: Any, **options: Any) -> Iterator[ipc.Client]:
    server = ipc.Server("s", **options)
    thread = threading.Thread(target=server.serve, args=(handler,))
    thread.start()
    try:
        with ipc.Client("s", **options) as client:
            yield client
    finally:
        server.close()
        thread.join()


def test_calls() -> None:
    with served(lambda request: request.value * 2) as client:
        assert client.call(4, timeout=60).value == 8
        answer = client.call(np.arange(100_000), timeout=60)
        assert answer.array[99_999] == 199_998
        assert answer.publisher == os.getpid()
        with answer:
            assert answer.value is not None
        with pytest.raises(ipc.Closed):
            _ = answer.value
        pending = [client.send(number) for number in range(8)]
        assert [each.result(60).value for each in reversed(pending)] == list(range(14, -1, -2))
        assert pending[0].done()


def test_an_answer_is_a_sample() -> None:
    with served(lambda request: request.value) as client:
        answers = [client.call(value, timeout=60) for value in (np.arange(3), b"four", [1])]
        for answer, kind, nbytes in zip(
            answers, ("array", "bytes", "object"), (24, 4, 8), strict=True
        ):
            assert isinstance(answer, ipc.Sample)
            assert (answer.kind, answer.nbytes, answer.header) == (kind, nbytes, None)
            assert (answer.sequence, answer.publisher) == (0, os.getpid())
        assert bytes(memoryview(answers[0])) == np.arange(3).tobytes()
        assert np.asarray(answers[0]).tolist() == np.from_dlpack(answers[0]).tolist() == [0, 1, 2]
        again = pickle.loads(pickle.dumps(answers[1]))
        assert (again.value, again.timestamp_ns) == (b"four", answers[1].timestamp_ns)
        assert isinstance(next(client.stream(1)), ipc.Sample)
        answers[0].release()
        with pytest.raises(ipc.Closed):
            _ = answers[0].value


def test_requests_that_a_loop_drops_fail_at_once() -> None:
    def drop() -> None:
        for request in server:
            if request.value:
                request.respond(request.value)
            del request

    async def drop_in_a_loop() -> None:
        async for request in server:
            if request.value:
                request.respond(request.value)
            del request

    for serve in (drop, lambda: asyncio.run(drop_in_a_loop())):
        with ipc.Server("s") as server, ipc.Client("s") as client:
            thread = threading.Thread(target=serve)
            thread.start()
            try:
                with pytest.raises(ipc.RemoteError, match="dropped the request"):
                    client.call(0, timeout=60)
                assert client.call(1, timeout=60).value == 1
            finally:
                server.close()
                thread.join()


def test_a_server_that_waits_holds_no_request() -> None:
    taken: list[weakref.ref[ipc.Request]] = []

    def handler(request: ipc.Request) -> int:
        taken.append(weakref.ref(request))
        return 1

    async def handle(request: ipc.Request) -> int:
        return handler(request)

    async def serve_in_a_loop() -> None:
        served_until_closed = server.serve(handle)
        assert served_until_closed is not None
        serving = asyncio.ensure_future(served_until_closed)
        with ipc.Client("s") as client:
            await client.acall(np.zeros(10_000), timeout=60)
            end = time.monotonic() + 60
            while taken[0]() is not None and time.monotonic() < end:
                await asyncio.sleep(0.001)
            assert taken.pop()() is None
        server.close()
        await serving

    with ipc.Server("s") as server:
        asyncio.run(serve_in_a_loop())
    with served(handler) as client:
        client.call(np.zeros(10_000), timeout=60)
        end = time.monotonic() + 60
        while taken[0]() is not None and time.monotonic() < end:
            time.sleep(0.001)
        assert taken[0]() is None


def test_the_time_out_of_a_call_counts_the_servers() -> None:
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(ipc.Client("s"))
        for text in ("no server is there", "1 server is there", "2 servers are there"):
            with pytest.raises(TimeoutError, match=text):
                client.call(0, timeout=0.01)
            stack.enter_context(ipc.Server("s"))


def test_arrays_by_key_and_by_attribute() -> None:
    both = ipc.Arrays(pose=ipc.Array("f8", 3), n=ipc.Array("i8", ()))

    def handler(request: ipc.Request) -> dict[str, Any]:
        assert request.value["n"] == request.value.n
        request.value.n = request.value.n + 1
        assert request.value["n"] == request.value.n
        with pytest.raises(AttributeError, match="it has pose, n"):
            request.value.m = 1
        assert pickle.loads(pickle.dumps(request.value)).keys() == {"pose", "n"}
        return {"pose": request.value.pose * 2, "n": request.value.n}

    with served(handler, request=both, response=both) as client:
        value = client.call({"pose": [1, 2, 3], "n": 7}, timeout=60).value
        assert value.n == value["n"] == 8
        assert value.pose.tolist() == value["pose"].tolist() == [2, 4, 6]
        with pytest.raises(AttributeError, match="no field 'other'; it has pose, n"):
            _ = value.other


def test_a_request_keeps_its_answer() -> None:
    with served(lambda request: request.value * 2) as client:
        pending = client.send(4)
        assert pending.result(60) is pending.result(0)

        async def twice() -> list[int]:
            return [(await each).value for each in (pending, client.send(5), pending)]

        assert asyncio.run(twice()) == [8, 10, 8]


class _Unreadable:
    """What can be pickled and not unpickled."""

    def __reduce__(self) -> Any:
        return _unpickled, ()


def _unpickled() -> None:
    raise ModuleNotFoundError("no module of this client")


def test_an_answer_that_cannot_be_read_ends_its_own_request() -> None:
    def streamed() -> Iterator[Any]:
        try:
            yield 1
            yield _Unreadable()
            yield from itertools.count()
        finally:
            ended.set()

    def handler(request: Any) -> Any:
        if request.value == "failed":
            raise ValueError(_Unreadable())
        if request.value == "arrays":
            return np.zeros(100_000), _Unreadable()
        return {"stream": streamed, "bad": _Unreadable}.get(request.value, lambda: "good")()

    ended = threading.Event()
    with served(handler) as client:
        pending = [client.send(each) for each in ("bad", "failed", "arrays", "good")]
        assert pending[3].result(20).value == "good"
        for each in pending[:3]:
            with pytest.raises(ModuleNotFoundError, match="no module of this client") as caught:
                each.result(20)
            assert "cannot be unpickled in this process" in caught.value.__notes__[0]
        stream = client.stream("stream")
        assert next(stream).value == 1
        with pytest.raises(ModuleNotFoundError):
            next(stream)
        assert ended.wait(20)
        assert client.call("good", timeout=20).value == "good"


def test_a_whole_number_that_does_not_fit_is_refused() -> None:
    with ipc.Client("s", "i1") as client, pytest.raises(OverflowError, match=r"Client\.send: 300"):
        client.send(np.int64(300))


def test_numbers_and_records_of_python_have_the_type_that_they_fit() -> None:
    with ipc.Server("s", "u1", [("a", "i4"), ("b", "f8")]) as server, ipc.Client("s") as client:
        thread = threading.Thread(target=server.serve, args=(lambda r: (r.value.max(), 0.5),))
        thread.start()
        answer = client.call(7, timeout=60).value
        assert (answer["a"], answer["b"], answer.shape) == (7, 0.5, ())
        with ipc.Client("s", "u1") as typed:
            assert typed.call([1], timeout=60).value["a"] == 1
        server.close()
        thread.join()


def test_failures_come_as_they_were_raised() -> None:
    class Own(Exception):
        pass

    def handler(request: Any) -> Any:
        raise {"k": KeyError("no"), "v": ValueError("bad", 3), "own": Own("mine")}[request.value]

    with served(handler) as client:
        with pytest.raises(KeyError, match="no"):
            client.call("k", timeout=60)
        with pytest.raises(ValueError, match="bad") as caught:
            client.call("v", timeout=60)
        assert caught.value.args == ("bad", 3)
        with pytest.raises(ipc.RemoteError, match="Own: mine"):
            client.call("own", timeout=60)


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_exception_that_has_no_text_reaches_the_client_alone(asynchronous: bool) -> None:
    def handler(request: Any) -> Any:
        if request.value == "mute":
            raise Mute(threading.Lock())
        if request.value == "file":
            raise FileNotFoundError(2, "not there", "a", None, "b")
        return request.value

    async def later(request: Any) -> Any:
        return handler(request)

    def serve() -> None:
        served = server.serve(later if asynchronous else handler)
        if served is not None:
            asyncio.run(as_coroutine(served))

    async def as_coroutine(awaitable: Any) -> None:
        await awaitable

    with ipc.Server("s") as server, ipc.Client("s") as client:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ipc.RemoteError, match="Mute: <its __str__ raised ValueError>"):
            client.call("mute", timeout=60)
        with pytest.raises(FileNotFoundError, match="'a' -> 'b'"):
            client.call("file", timeout=60)
        assert client.call(3, timeout=60).value == 3
        server.close()
        thread.join()


def test_a_cancelled_handler_answers_its_client() -> None:
    async def handler(request: Any) -> Any:
        if request.value == "cancelled":
            raise asyncio.CancelledError
        await asyncio.sleep(60)

    async def main() -> None:
        with ipc.Server("s") as server, ipc.Client("s") as client:
            serving = server.serve(handler)
            assert serving is not None
            serving = asyncio.ensure_future(serving)
            async with asyncio.timeout(20):
                with pytest.raises(ipc.RemoteError, match="CancelledError"):
                    await client.acall("cancelled")
                pending = client.send("slow")
                await asyncio.sleep(0.1)
                serving.cancel()
                with pytest.raises(ipc.RemoteError, match="CancelledError"):
                    await pending

    asyncio.run(main())


def test_an_exit_of_a_server_answers_its_client() -> None:
    def handler(request: Any) -> Any:
        raise SystemExit("enough")

    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send(1)
        with pytest.raises(SystemExit) as caught:
            server.serve(handler)
        with pytest.raises(ipc.RemoteError, match="SystemExit: enough"):
            pending.result(20)
        assert caught.traceback


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_of_an_event_loop_is_not_printed_as_well(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: Any) -> Any:
        raise kind("enough")

    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send(1)
        served = server.serve(handler)
        assert inspect.iscoroutine(served)
        with pytest.raises(kind, match="enough"):
            asyncio.run(served)
        with pytest.raises(ipc.RemoteError, match=f"{kind.__name__}: enough"):
            pending.result(20)
    gc.collect()
    assert not caplog.records  # by which asyncio reports tasks whose exceptions no caller saw


def test_streams() -> None:
    def handler(request: Any) -> Iterator[Any]:
        for number in range(request.value):
            if number == 300:
                raise OverflowError("enough")
            yield np.full(5000, number)

    with served(handler) as client:
        assert [int(each.value[0]) for each in client.stream(200)] == list(range(200))
        assert list(client.stream(0)) == []
        with pytest.raises(OverflowError, match="enough"):
            list(client.stream(1000))


def test_requests_one_by_one() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send(b"x" * 1000)
        request = server.receive(60)
        assert request.value == b"x" * 1000
        assert request.client == os.getpid()
        loan = request.loan((3, 4), "f4")
        loan.array[:] = 7
        loan.send()
        assert (pending.result(60).value == 7).all()
        with pytest.raises(RuntimeError, match="answered before"):
            request.respond(1)
        with pytest.raises(RuntimeError, match="sent or dropped"):
            loan.send()
        pending = client.send(1)
        request = server.receive(60)
        request.fail(PermissionError("not you"))
        with pytest.raises(PermissionError, match="not you"):
            pending.result(60)
        pending = client.send(1)
        request = server.receive(60)
        text: Any = "text"
        with pytest.raises(TypeError, match="'text' is not an exception"):
            request.fail(text)
        request.fail(KeyError)
        with pytest.raises(KeyError):
            pending.result(60)
        pending = client.send(1)
        server.receive(60)
        gc.collect()
        with pytest.raises(ipc.RemoteError, match="without an answer"):
            pending.result(60)
        with pytest.raises(TimeoutError, match="no request"):
            server.receive(0.01)


def test_types() -> None:
    with served(lambda request: request.value + 0.5, request="4f8", response="4f8") as client:
        assert client.call([1, 2, 3, 4], timeout=60).value.tolist() == [1.5, 2.5, 3.5, 4.5]
        with pytest.raises(ValueError, match="shape"):
            client.call([1, 2], timeout=60)
        with pytest.raises(TypeError, match="not a number"):
            client.call(["a"] * 4, timeout=60)
        with pytest.raises(ipc.TypeMismatch, match=r"<f4.*<f8"):
            ipc.Client("s", request="4f4")


def test_a_client_before_its_server_and_no_server() -> None:
    with ipc.Client("s") as client:
        with pytest.raises(TimeoutError, match="no server is there"):
            client.call(1, timeout=0.05)
        pending = client.send(20)
        with served(lambda request: request.value + 1):
            assert pending.result(60).value == 21


def test_several_clients_and_servers() -> None:
    out = ipc.Queue()
    servers = [FORK.Process(target=queue_players.serve_sums, args=("s", out)) for _ in range(2)]
    for each in servers:
        each.start()
    for _ in servers:
        out.get(timeout=60)
    clients = [ipc.Client("s") for _ in range(3)]
    found = [[client.send(np.full(3000, number)) for number in range(20)] for client in clients]
    whole = [[each.result(60) for each in some] for some in found]
    for some in whole:
        assert [each.value for each in some] == [3000.0 * number for number in range(20)]
    for client in clients:
        client.close()
    for each in servers:
        os.kill(each.pid or 0, signal.SIGKILL)
        each.join()
    out.close()


def test_a_server_that_dies_with_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> None:
        pytest.fail("its error does not wait for the broker")

    out = ipc.Queue()
    child = FORK.Process(target=queue_players.take_one_and_hang, args=("s", out))
    child.start()
    out.get(timeout=60)
    with ipc.Client("s") as client:
        first, second = client.send(1), client.send(2)
        assert out.get(timeout=60) == "taken"
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        with monkeypatch.context() as patch:
            patch.setattr(client._named, "entries", stopped)
            with pytest.raises(ipc.PeerLost, match="has died"):
                first.result(60)
        with served(lambda request: request.value * 10):
            assert second.result(60).value == 20  # it had not taken that one
    out.close()


def test_asyncio() -> None:
    async def handler(request: Any) -> Any:
        await asyncio.sleep(0.001)
        if request.value == "bad":
            raise LookupError("bad")
        return request.value + 1

    async def several(request: Any) -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def main() -> None:
        with ipc.Server("s") as server, ipc.Client("s") as client:
            serving = asyncio.ensure_future(server.serve(handler))
            answers = await asyncio.gather(*[client.acall(n, timeout=60) for n in range(20)])
            assert [each.value for each in answers] == list(range(1, 21))
            with pytest.raises(LookupError):
                await client.acall("bad")
            assert (await client.send(5)).value == 6
            server.close()
            await serving
        with ipc.Server("t") as server, ipc.Client("t") as client:
            serving = asyncio.ensure_future(server.serve(several))
            assert [each.value async for each in client.stream(None)] == [0, 1, 2]
            server.close()
            await serving

    asyncio.run(main())


def test_none_of_it_is_copied() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send(1)
        request = server.receive(60)
        for each in (server, client, pending, request, request.loan(3), client.stream(2)):
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot copy or pickle"):
                    make(each)
        request.respond(2)
        assert copy.copy(pending.result(60)).value == 2


def test_a_child_that_was_forked_off_does_not_answer_for_its_parent() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending, stream = client.send(1), client.stream(2)
        request, streamed = server.receive(60), server.receive(60)
        child = FORK.Process(target=gc.collect)
        child.start()  # it ends with all these objects
        child.join()
        pid = os.fork()
        if pid == 0:
            try:
                del request, streamed, pending, stream
                gc.collect()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        request.respond(3)
        assert pending.result(60).value == 3
        streamed.stream(range(3))
        assert [each.value for each in stream] == [0, 1, 2]


def test_after_the_end() -> None:
    server, client = ipc.Server("s"), ipc.Client("s")
    for each in (server, client):
        each.close()
        each.close()
        assert "closed" in repr(each)
    with pytest.raises(ipc.Closed):
        server.receive(0)
    with pytest.raises(ipc.Closed):
        client.send(1)


def test_the_server_of_a_stream_whose_client_was_closed_ends_it() -> None:
    go = FORK.SimpleQueue()
    child = FORK.Process(target=queue_players.leave_a_stream, args=("s", go))
    child.start()
    ended = threading.Event()

    def count(request: Any) -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            ended.set()

    with ipc.Server("s") as server:
        thread = threading.Thread(target=server.serve, args=(count,), daemon=True)
        thread.start()
        try:
            assert ended.wait(60)
        finally:
            go.put(None)
            child.join()
            server.close()
            thread.join(60)
