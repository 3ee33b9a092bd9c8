# SPDX-License-Identifier: Apache-2.0
"""Wait sets over all kinds of objects, and which names there are."""

import asyncio
import contextlib
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from shmnd import ipc
from shmnd.common.owned import Owned
from shmnd.ipc.common import closed
from shmnd.ipc.naming import shared_name
from shmnd.ipc.queue import queueing
from shmnd.ipc.service import client, service_user


def test_a_wait_set_returns_the_added_objects() -> None:
    there, here = os.pipe()
    with (
        ipc.Listener("e") as listener, ipc.Notifier("e") as notifier,
        ipc.Blackboard("b", {"x": "f8"}) as board, ipc.BlackboardReader("b") as reader,
        ipc.Server("s") as server, ipc.Client("s") as client,
        ipc.Queue() as q, ipc.WaitSet(listener, reader, server, client) as both,
    ):  # fmt: skip
        both.add(q)
        both.add(there)
        both.add(there)
        assert len(both) == 6
        assert both.wait(0) == ()
        assert both.wait(0.01) == ()
        notifier.notify(4)
        assert both.wait(60) == (listener,)
        assert listener.wait(0) == {4}
        board["x"] = 1
        assert both.wait(60) == (reader,)
        assert reader["x"] == 1
        q.put(1)
        assert both.wait(60) == (q,)
        q.get()
        pending = client.send(1)
        assert both.wait(60) == (server,)
        server.receive(60).respond(2)
        assert client in both.wait(60)
        assert pending.result(60).value == 2
        os.write(here, b"x")
        assert both.wait(60) == (there,)
        assert os.read(there, 1) == b"x"
        timer = threading.Timer(0.05, notifier.notify)
        timer.start()
        assert both.wait(60) == (listener,)
        timer.join()
        listener.wait(0)
        both.remove(q)
        assert q not in both
        with pytest.raises(KeyError):
            both.remove(q)
        with pytest.raises(TypeError, match="fileno"):
            both.add("x")

        async def main() -> tuple[object, ...]:
            later = threading.Timer(0.05, notifier.notify)
            later.start()
            found = await both.await_ready(60)
            later.join()
            return found

        assert asyncio.run(main()) == (listener,)
        listener.wait(0)
        before = time.process_time()
        assert both.wait(1) == ()
        assert time.process_time() - before < 0.2
    os.close(there)
    os.close(here)
    with pytest.raises(ipc.Closed):
        both.wait(0)


def test_the_lists_of_names() -> None:
    assert ipc.topics() == ipc.services() == ipc.events() == ipc.blackboards() == ()
    assert ipc.queues() == ()
    with (
        ipc.Listener("e"), ipc.Notifier("e"), ipc.Notifier("f"), ipc.Blackboard("b"),
        ipc.Server("s", request="f8"), ipc.Client("s"),
    ):  # fmt: skip
        (one, two) = ipc.events()
        assert (one.name, one.kind, two.name) == ("e", "event", "f")
        assert one.counts == {"listener": 1, "notifier": 1}
        assert (os.getpid(), "listener") in one.who
        (service,) = ipc.services()
        assert service.type == {"request": "<f8", "response": "any"}
        assert str(service) == "service s: 1 client, 1 server"
        assert [each.name for each in ipc.blackboards()] == ["b"]


def test_queues_are_found_by_their_names() -> None:
    with ipc.Queue(), ipc.watch() as watch, ipc.Queue(4, name="work") as q:
        (queue,) = ipc.queues()
        assert (queue.name, queue.kind, queue.counts) == ("work", "queue", {"member": 1})
        assert queue.who == ((os.getpid(), "member"),)
        came = watch.wait(60)
        assert came is not None
        assert (came.name, came.kind, came.event) == ("work", "queue", "came")
        with ipc.Queue(name="work"):
            assert ipc.queues()[0].counts == {"member": 2}
        q.close()
        assert ipc.queues() == ()


def test_a_watch_reports_changes() -> None:
    with ipc.watch() as watch:
        assert watch.wait(0.01) is None
        with ipc.Listener("e"):
            change = watch.wait(60)
            assert change is not None
            assert (change.name, change.kind, change.event) == ("e", "event", "came")
            assert (change.role, change.pid) == ("listener", os.getpid())
        change = watch.wait(60)
        assert change is not None
        assert change.event == "gone"

        async def main() -> ipc.discovery.Change:
            timer = threading.Timer(0.05, lambda: made.append(ipc.Notifier("later")))
            timer.start()
            async for each in watch:
                timer.join()
                return each
            raise AssertionError

        made: list[ipc.Notifier] = []
        assert asyncio.run(main()).name == "later"
        made[0].close()


def test_threads_and_tasks_share_a_watch() -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(take()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks.pop().cancel()  # the last one that waits
        while len(seen) < 120:
            await asyncio.sleep(0.01)
        watch.close()
        await asyncio.gather(*tasks)  # the end of the watch ends their loops

    async def take() -> None:
        async for change in watch:
            seen.append((change.name, change.event))

    def take_in_thread() -> None:
        seen.extend((change.name, change.event) for change in watch)

    def come_and_go() -> None:
        for number in range(60):
            ipc.Notifier(f"n{number}").close()

    seen: list[tuple[str, str]] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ipc.watch() as watch:
            threads = [threading.Thread(target=take_in_thread) for _ in range(2)]
            threads.append(threading.Thread(target=come_and_go))
            for each in threads:
                each.start()
            asyncio.run(main())
            for each in threads:
                each.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(seen) == sorted((f"n{n}", event) for n in range(60) for event in ("came", "gone"))


def test_a_wait_set_of_many_subscribers_and_readers_is_awaited() -> None:
    async def main() -> None:
        for each in (*subscribers[::29], *readers[::29]):
            later = asyncio.get_running_loop().call_later(0.02, change, each)
            found = await every.await_ready(60)
            later.cancel()
            assert each in found
            for one in found:
                one.try_receive() if isinstance(one, ipc.Subscriber) else one["x"]
            assert every.wait(0) == ()
        assert await every.await_ready(0.05) == ()

    def change(each: ipc.Subscriber | ipc.BlackboardReader) -> None:
        if isinstance(each, ipc.Subscriber):
            pub.send(1)
        else:
            board["x"] = 1

    with ipc.Publisher("many", "i8") as pub, ipc.Blackboard("many", {"x": "i8"}) as board:
        subscribers = [ipc.Subscriber("many") for _ in range(60)]
        readers = [ipc.BlackboardReader("many") for _ in range(60)]
        every = ipc.WaitSet(*subscribers, *readers)
        assert pub.subscribers == 60
        asyncio.run(main())
        change(readers[30])
        assert every.wait(60) == tuple(readers)
        every.remove(subscribers[0])
        change(subscribers[0])
        assert set(every.wait(60)) == {*subscribers[1:], *readers}
        for each in (*subscribers, *readers):
            each.close()
        with pytest.raises(ipc.Closed):
            every.wait(0)
        every.close()


def test_an_object_added_during_a_wait_is_waited_for() -> None:
    with (
        ipc.Publisher("a", "i8") as pub, ipc.Subscriber("a") as sub,
        ipc.Subscriber("b") as first, ipc.WaitSet(first) as both,
    ):  # fmt: skip
        assert pub.subscribers == 1
        found: list[tuple[object, ...]] = []
        thread = threading.Thread(target=lambda: found.append(both.wait(60)))
        thread.start()
        time.sleep(0.05)
        both.add(sub)
        both.remove(first)
        pub.send(1)
        thread.join(60)
        assert found == [(sub,)]


@pytest.mark.parametrize("task", [False, True])
def test_a_queue_that_is_added_while_a_wait_sleeps_is_waited_for(task: bool) -> None:
    with ipc.Queue() as idle, ipc.Queue() as full, ipc.WaitSet(idle) as both:
        full.put(1)
        timer = threading.Timer(0.05, both.add, (full,))
        timer.start()
        began = time.monotonic()
        assert (asyncio.run(both.await_ready(60)) if task else both.wait(60)) == (full,)
        assert time.monotonic() - began < 30
        timer.join()


def test_a_wait_set_names_a_closed_object() -> None:
    ours, theirs = socket.socketpair()
    with theirs, ipc.Queue() as queue, ipc.WaitSet(ours, queue) as both:
        ours.close()
        assert both.wait(0) == (ours,)  # using it raises
        both.remove(ours)
        queue.close()
        with pytest.raises(ipc.Closed, match="Queue closed> was closed; remove it"):
            both.wait(0)
        both.remove(queue)
        assert both.wait(0) == ()


def test_a_close_by_another_thread_ends_a_wait() -> None:
    def closed_soon(obj: Any) -> Any:
        timer = threading.Timer(0.1, obj.close)
        timer.start()
        timers.append(timer)
        return obj

    timers: list[threading.Timer] = []
    with pytest.raises(ipc.Closed, match=r"Subscriber\.receive: .* is closed"):
        closed_soon(ipc.Subscriber("a")).receive(60)
    with pytest.raises(ipc.Closed, match="the client is closed"):
        closed_soon(ipc.Client("a")).call(1, timeout=60)
    assert list(closed_soon(ipc.watch())) == []
    with pytest.raises(ipc.Closed, match="the watch is closed"):
        closed_soon(ipc.watch()).wait(60)
    for each in timers:
        each.join()


@pytest.mark.parametrize("task", [False, True])
@pytest.mark.parametrize("kind", ["subscriber", "reader", "listener", "server", "client", "queue"])
def test_a_close_by_another_thread_ends_a_wait_set(kind: str, task: bool) -> None:
    made: dict[str, Callable[[], Any]] = {
        "subscriber": lambda: ipc.Subscriber("t", "u8"),
        "reader": lambda: ipc.BlackboardReader("b"),
        "listener": lambda: ipc.Listener("e"),
        "server": lambda: ipc.Server("s"),
        "client": lambda: ipc.Client("s"),
        "queue": ipc.Queue,
    }
    with ipc.Blackboard("b", {"x": "f8"}), made[kind]() as obj, ipc.WaitSet(obj) as both:
        timer = threading.Timer(0.1, obj.close)
        timer.start()
        began = time.monotonic()
        with pytest.raises(ipc.Closed, match="closed"):
            asyncio.run(both.await_ready(60)) if task else both.wait(60)
        assert time.monotonic() - began < 30
        timer.join()
        both.remove(obj)
        assert both.wait(0) == ()


def test_a_task_that_begins_to_wait_as_another_thread_closes_does_not_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def closing_in(queue: ipc.Queue, obj: Any) -> Any:
        begin = queue._task
        monkeypatch.setattr(queue, "_task", lambda *kind: obj.close() or begin(*kind))
        return obj

    async def ended(awaitable: Any) -> None:
        await asyncio.wait_for(awaitable, 30)

    queue = ipc.Queue()
    with pytest.raises(ValueError, match="is closed"):
        asyncio.run(ended(closing_in(queue, queue).aget()))
    server = ipc.Server("s")
    asyncio.run(ended(_served(closing_in(server._requests, server))))
    client = ipc.Client("s")
    with pytest.raises(ipc.Closed, match="the client is closed"):
        asyncio.run(ended(closing_in(client._answers, client).acall(1)))


@pytest.mark.parametrize("way", ["put", "aput"])
def test_a_put_that_waits_ends_when_another_thread_closes(way: str) -> None:
    queue = ipc.Queue(1)
    queue.put(1)
    threading.Timer(0.3, queue.close).start()
    with pytest.raises(ValueError, match="is closed"):
        queue.put(2, timeout=60) if way == "put" else asyncio.run(queue.aput(2, timeout=60))


def test_items_behind_a_closed_queue_wait_without_a_cost() -> None:
    queue = ipc.Queue()
    for _ in range((1 << 16) + 1):
        queue.put(None)
    other = ipc.Queue.of_file(Owned.of(os.dup, queue._core.fd))
    queue.close()
    time.sleep(0.5)
    began = time.process_time()
    time.sleep(1.0)
    cost = time.process_time() - began
    other.get()
    queue.join_thread()
    other.close()
    assert cost < 0.5


async def _served(server: ipc.Server) -> None:
    async for _ in server:
        pass


def _read(reader: Any) -> None:
    with contextlib.suppress(ipc.NoPublisher):
        reader["x"]


def _repeat(call: Callable[[Any], object], obj: Any) -> None:
    while True:
        call(obj)


_BUSY: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "reader": (lambda: ipc.BlackboardReader("b"), _read),
    "board": (lambda: ipc.Blackboard("c", {"x": "f8"}), lambda board: board.__setitem__("x", 1)),
    "publisher": (lambda: ipc.Publisher("t", "i8"), lambda pub: pub.send([1] * 9999)),
    "set": (lambda: ipc.BlackboardReader("b"), lambda reader: ipc.WaitSet(reader).wait(0)),
}


@pytest.mark.parametrize("kind", _BUSY)
def test_a_call_that_another_thread_overtakes_with_close_is_closed(kind: str) -> None:
    make, call = _BUSY[kind]
    with ipc.Blackboard("b", {"x": "f8"}) as board:
        board["x"] = 1
        for number in range(40):
            obj = make()
            closing = threading.Timer(0.0003 * number, obj.close)
            closing.start()
            with pytest.raises(ipc.Closed):
                _repeat(call, obj)
            closing.join()


def test_an_observer_that_is_gone_is_forgotten() -> None:
    with ipc.Queue() as queue:
        for _ in range(3):
            ipc.WaitSet(queue).wait(0)
        gc.collect()
        assert len(closed._observers[queue]) == 0
    assert queue not in closed._observers


@pytest.mark.parametrize("kind", ["queue", "service", "event"])
def test_a_holder_that_is_not_seen_in_proc_is_an_error(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another memory of the same name would divide its users."""
    make: dict[str, Callable[[], Any]] = {
        "queue": lambda: ipc.Queue(4, name="n"),
        "service": lambda: ipc.Client("n"),
        "event": lambda: ipc.Notifier("n"),
    }

    def unseen(*_: object) -> int:
        raise FileNotFoundError

    first = make[kind]()
    with monkeypatch.context() as patch:
        for module in (queueing, service_user):  # as of another process
            patch.setattr(module, "core_here", lambda *_: None)
        patch.setattr(shared_name, "open_of_process", unseen)
        patch.setattr(shared_name, "is_hidden", lambda entry: True)
        patch.setattr(shared_name, "_ENDING", 0.01)
        with pytest.raises(OSError, match=f"process {os.getpid()}, .* another PID namespace"):
            make[kind]()
        first.close()
        make[kind]().close()  # the one that was not seen has ended


def test_a_request_carries_the_pid_that_others_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "os", SimpleNamespace(getpid=lambda: 1, fstat=os.fstat))
    with ipc.Server("s") as server, ipc.Client("s") as asking:
        pending = asking.send(4)
        request = server.receive(60)
        assert request.client == os.getpid()
        request.respond(5)
        assert pending.result(60).value == 5
