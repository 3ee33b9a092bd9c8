# SPDX-License-Identifier: Apache-2.0
"""A time-out that is none is refused by every call, also where nothing is to wait for."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from shmnd import ipc

Ends = SimpleNamespace


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Ends with which no call below has to wait."""
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        e = Ends(pub=enter(ipc.Publisher("t", "f8")), sub=enter(ipc.Subscriber("t", "f8")))
        e.q, e.full = enter(ipc.Queue()), enter(ipc.Queue(1))
        e.full.put(1)
        e.listener, e.notifier = enter(ipc.Listener("e")), enter(ipc.Notifier("e"))
        e.both, e.watch = enter(ipc.WaitSet(e.listener)), enter(ipc.watch())
        e.board, e.reader = (
            enter(ipc.Blackboard("b", {"x": "f8"})),
            enter(ipc.BlackboardReader("b")),
        )
        e.server, e.client = enter(ipc.Server("s")), enter(ipc.Client("s"))
        answering = threading.Thread(target=e.server.serve, args=(lambda request: request.value,))
        answering.start()
        e.pub.send([1.0])
        e.q.put(1)
        e.notifier.notify(1)
        e.board["x"] = 1
        e.pending = e.client.send(1)
        e.pending.result(60)
        yield e
        e.server.close()
        answering.join(60)
        assert not answering.is_alive()


def _run(awaitable: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await awaitable()

    return asyncio.run(main())


CALLS: dict[str, Callable[[Ends, Any], Any]] = {
    "Subscriber.receive": lambda e, timeout: e.sub.receive(timeout),
    "Subscriber.areceive": lambda e, timeout: _run(lambda: e.sub.areceive(timeout)),
    "Publisher.send": lambda e, timeout: e.pub.send([1.0], timeout=timeout),
    "Loan.send": lambda e, timeout: e.pub.loan(1).send(timeout=timeout),
    "Publisher.wait_for_subscribers": lambda e, timeout: e.pub.wait_for_subscribers(1, timeout),
    "Listener.wait": lambda e, timeout: e.listener.wait(timeout),
    "WaitSet.wait": lambda e, timeout: e.both.wait(timeout),
    "WaitSet.await_ready": lambda e, timeout: _run(lambda: e.both.await_ready(timeout)),
    "ipc.watch": lambda e, timeout: e.watch.wait(timeout),
    "BlackboardReader.wait": lambda e, timeout: e.reader.wait("x", after=0, timeout=timeout),
    "Client.call": lambda e, timeout: e.client.call(1, timeout),
    "Client.acall": lambda e, timeout: _run(lambda: e.client.acall(1, timeout)),
    "Client.send": lambda e, timeout: e.client.send(1, timeout),
    "Pending.result": lambda e, timeout: e.pending.result(timeout),
    "Server.receive": lambda e, timeout: e.server.receive(timeout),
}


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan"), "5", 1j, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_need_not_wait(ends: Ends, call: str, timeout: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{call}: timeout .* is (negative|not a number)"):
        CALLS[call](ends, timeout)
    assert CALLS["Subscriber.receive"](ends, 5).array[0] == 1  # nothing is lost by it


QUEUES: dict[str, Callable[[Ends, Any], Any]] = {
    "get": lambda e, timeout: e.q.get(True, timeout),
    "get without waiting": lambda e, timeout: e.q.get(False, timeout),
    "put": lambda e, timeout: e.q.put(2, True, timeout),
    "put without waiting": lambda e, timeout: e.q.put(2, False, timeout),
    "aget": lambda e, timeout: _run(lambda: e.q.aget(timeout)),
    "aput": lambda e, timeout: _run(lambda: e.q.aput(2, timeout)),
}


@pytest.mark.parametrize("timeout", ["5", 1j, (1,)])
@pytest.mark.parametrize("call", QUEUES)
def test_a_queue_as_that_of_multiprocessing(ends: Ends, call: str, timeout: Any) -> None:
    with pytest.raises(TypeError, match=r"^Queue: timeout .* is not a number of seconds"):
        QUEUES[call](ends, timeout)
    assert ends.q.get(timeout=60) == 1
    assert ends.q.empty()


def test_a_queue_takes_less_than_nothing_for_nothing(ends: Ends) -> None:
    assert ends.q.get(True, -1) == 1
    with pytest.raises(queue.Empty):
        ends.q.get(True, -1)
    with pytest.raises(queue.Full):
        ends.full.put(1, True, -1)
    for empty in (
        lambda: ends.q.get(True, float("nan")),
        lambda: ends.full.put(1, True, float("nan")),
    ):
        with pytest.raises(ValueError, match="nan is not a number of seconds"):
            empty()


class PutsAnother:
    """As it is pickled, another item comes into the queue."""

    def __init__(self, q: Any) -> None:
        self.q = q

    def __reduce__(self) -> Any:
        self.q.put_nowait(2)
        return (int, ())


def test_a_put_whose_room_another_one_took_waits_no_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ipc.Queue(1) as q:
        q.put(1)
        waited: list[float] = []

        def make_room(left: float, long: bool) -> None:
            """Let it wait for a part of its time, then make room."""
            waited.append(left)
            time.sleep(0.1)
            assert q.get() == len(waited)

        monkeypatch.setattr(q, "_wait_for_room", make_room)
        q.put(PutsAnother(q), timeout=50)
        first, second = waited
        assert second <= first - 0.1
        assert q.get() == 0


def test_an_answer_has_no_header_and_waits_for_no_subscriber(ends: Ends) -> None:
    with ipc.Server("other", response="f8") as server, ipc.Client("other") as client:
        pending = client.send(1)
        request = server.receive(60)
        loan = request.loan(1)
        with pytest.raises(TypeError, match=r"^Loan.send: an answer has no header"):
            loan.send(b"x")
        with pytest.raises(ValueError, match=r"^Loan.send: timeout -1 is negative"):
            loan.send(timeout=-1)
        loan.array[:] = 3
        loan.send(timeout=1)
        assert pending.result(60).value[0] == 3
