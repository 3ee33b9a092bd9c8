# SPDX-License-Identifier: Apache-2.0
"""No descriptor is free: opening says so, open objects continue, and nothing is lost."""

import asyncio
import multiprocessing
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from ipc import queue_players
from shmnd import ipc
from shmnd.ipc.service import asking
from shmnd.status import NdError, Status

FORK = multiprocessing.get_context("fork")
PATIENCE = 60.0


@contextmanager
def descriptors(left: int) -> Iterator[None]:
    """Have so many descriptors free."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < 300:  # the holes below it, too
        taken.append(os.open(os.devnull, os.O_RDONLY))
    for _ in range(left):
        os.close(taken.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (301, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


OPENED: dict[str, Callable[[], Any]] = {
    "Publisher": lambda: ipc.Publisher("t", "f8"),
    "Subscriber": lambda: ipc.Subscriber("t", "f8"),
    "Server": lambda: ipc.Server("s"),
    "Client": lambda: ipc.Client("s"),
    "Notifier": lambda: ipc.Notifier("e"),
    "Listener": lambda: ipc.Listener("e"),
    "Blackboard": lambda: ipc.Blackboard("b", {"x": "f8"}),
    "BlackboardReader": lambda: ipc.BlackboardReader("b"),
    "Queue": lambda: ipc.Queue(name="q"),
    "WaitSet": ipc.WaitSet,
    "topics": lambda: ipc.topics()[:0] or None,
    "watch": ipc.watch,
}
OTHERS = {
    "none": (),
    "all": ("Publisher", "Server", "Notifier", "Blackboard", "Queue"),
}


def _open(name: str) -> tuple[NdError | None, Any]:
    try:
        return None, OPENED[name]()
    except NdError as exc:
        return exc, None


@pytest.mark.parametrize(
    ("name", "others"),
    [
        pytest.param(name, others, id=f"{name}-{word}")
        for name in OPENED
        for word, others in OTHERS.items()
        if not (name == "Blackboard" and name in others)  # which has one writer
    ],
)
def test_opening_without_a_free_descriptor(name: str, others: tuple[str, ...]) -> None:
    ipc.topics()  # modules are imported
    with ExitStack() as stack:
        for each in others:
            stack.enter_context(OPENED[each]())
        for left in range(20):
            with descriptors(left):
                failed, made = _open(name)
            if failed is None:
                break
            assert failed.status == Status.INSUFFICIENT_RESOURCES
            assert "ulimit -n" in str(failed)
        assert failed is None
        if made is not None:
            made.close()
    made = OPENED[name]()  # as if nothing had been
    if made is not None:
        made.close()


@contextmanager
def another(call: Callable[[], object]) -> Iterator[None]:
    """Have a thread call, once this one sleeps at length."""
    found: list[BaseException] = []

    def later() -> None:
        try:
            call()
        except BaseException as exc:
            found.append(exc)

    timer = threading.Timer(0.25, later)
    timer.start()
    try:
        yield
    finally:
        timer.join()
    assert not found


def queue_get() -> None:
    queue = ipc.Queue()
    with descriptors(0), another(lambda: queue.put(5)):
        assert queue.get(timeout=PATIENCE) == 5


def queue_put() -> None:
    queue = ipc.Queue(1)
    queue.put(1)
    with descriptors(0), another(queue.get):
        queue.put(2, timeout=PATIENCE)
    assert queue.get(timeout=PATIENCE) == 2


def queue_join() -> None:
    queue = ipc.JoinableQueue()
    queue.put(1)
    queue.get()
    with descriptors(0), another(queue.task_done):
        queue.join()


def listener() -> None:
    with ExitStack() as stack:
        listener, notifier = map(stack.enter_context, (ipc.Listener("e"), ipc.Notifier("e")))
        stack.enter_context(descriptors(0))
        stack.enter_context(another(lambda: notifier.notify(3)))
        assert listener.wait(PATIENCE) == {3}


def blackboard() -> None:
    with ExitStack() as stack:
        board = stack.enter_context(ipc.Blackboard("b", {"x": "f8"}))
        reader = stack.enter_context(ipc.BlackboardReader("b"))
        stack.enter_context(descriptors(0))
        stack.enter_context(another(lambda: board.__setitem__("x", 3.0)))
        assert reader.wait("x", timeout=PATIENCE) == 3.0


def call() -> None:
    with ipc.Server("s") as server, ipc.Client("s") as client:
        first = client.send(1)
        request = server.receive(PATIENCE)  # it has the queue of the client's answers
        with descriptors(0), another(lambda: request.respond(2)):
            assert first.result(PATIENCE).value == 2
        with descriptors(0), another(lambda: client.send(3)):
            request = server.receive(PATIENCE)
        assert request.value == 3
        request.respond(None)


def wait_set() -> None:
    queue = ipc.Queue()
    with ipc.WaitSet(queue) as ready, descriptors(0), another(lambda: queue.put(5)):
        assert ready.wait(PATIENCE) == (queue,)


def tasks() -> None:
    async def main() -> None:
        queue = ipc.Queue()
        with ExitStack() as stack:
            listener, notifier = map(stack.enter_context, (ipc.Listener("e"), ipc.Notifier("e")))
            board = stack.enter_context(ipc.Blackboard("b", {"x": "f8"}))
            reader = stack.enter_context(ipc.BlackboardReader("b"))
            stack.enter_context(descriptors(0))
            with another(lambda: queue.put(5)):
                assert await queue.aget(PATIENCE) == 5
            with another(lambda: notifier.notify(3)):
                assert await listener.await_ids(PATIENCE) == {3}
            with another(lambda: board.__setitem__("x", 3.0)):
                assert await reader.await_change("x", timeout=PATIENCE) == 3.0

    asyncio.run(main())


WAITS = [queue_get, queue_put, queue_join, listener, blackboard, call, wait_set, tasks]


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_continues_without_one(wait: Callable[[], None]) -> None:
    wait()


def sleeping(wait: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.25)
    return thread


def test_waking_a_long_sleeper_needs_no_descriptor() -> None:
    """It had put the item, or taken it, and raised because it could not ring."""
    queue = ipc.Queue()
    found: list[Any] = []
    thread = sleeping(lambda: found.append(queue.get(timeout=PATIENCE)))
    with descriptors(0):
        queue.put(5)
    thread.join(PATIENCE)
    assert found == [5]
    queue = ipc.Queue(1)
    queue.put(1)
    thread = sleeping(lambda: queue.put(2, timeout=PATIENCE))
    with descriptors(0):
        assert queue.get(timeout=PATIENCE) == 1
    thread.join(PATIENCE)
    assert queue.get(timeout=PATIENCE) == 2


def test_a_request_stays_until_its_client_can_be_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "core_here", lambda *_: None)  # as of another process
    with ipc.Server("s") as server, ipc.Client("s") as client:
        pending = client.send(1)
        with descriptors(0):
            for _ in range(3):
                with pytest.raises(NdError) as caught:
                    server.receive(PATIENCE)
                assert caught.value.status == Status.INSUFFICIENT_RESOURCES
        assert server.ready()
        server.receive(PATIENCE).respond(2)
        assert pending.result(PATIENCE).value == 2


# -- topics between processes --


def test_a_subscriber_reports_an_unreachable_publisher_and_tries_again() -> None:
    with publishing("t") as begin:
        with ipc.Subscriber("t", "f8") as subscriber:
            with descriptors(0):
                begin()
                with pytest.raises(NdError, match="INSUFFICIENT_RESOURCES"):
                    subscriber.receive(PATIENCE)
                with pytest.raises(TimeoutError, match=r"1 more cannot be reached: .*ulimit -n"):
                    subscriber.receive(0.2)
            with subscriber.receive(PATIENCE) as sample:
                assert sample.array == 0.5
        ipc.topics()
        for left in range(1, 20):
            with ipc.Notifier("e"), descriptors(left):
                failed, made = _open("Subscriber")
            if made is not None:
                made.close()
                break
            assert failed is not None
            assert failed.status == Status.INSUFFICIENT_RESOURCES
        assert failed is None


def test_a_publisher_reports_an_unreachable_subscriber() -> None:
    with ipc.Publisher("t", "f8", history=1) as publisher:
        publisher.send(0.5)
        parent, end = FORK.Pipe()
        child = FORK.Process(target=queue_players.receive_one, args=("t", end))
        child.start()
        try:
            with descriptors(0):
                parent.send(None)
                found = ""
                while "1 more cannot be reached" not in found:
                    with pytest.raises(TimeoutError) as caught:
                        publisher.wait_for_subscribers(1, 0.2)
                    found = str(caught.value)
            publisher.wait_for_subscribers(1, PATIENCE)
            assert parent.recv() == 0.5
        finally:
            child.kill()
            child.join()


@contextmanager
def publishing(name: str) -> Iterator[Callable[[], None]]:
    """Have another process publish, at a word of this one."""
    parent, end = FORK.Pipe()
    child = FORK.Process(target=queue_players.publish, args=(name, end))
    child.start()
    try:
        yield lambda: parent.send(None)
    finally:
        child.kill()
        child.join()
