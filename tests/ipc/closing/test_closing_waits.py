# SPDX-License-Identifier: Apache-2.0
"""A thread that waits learns at once that another thread has closed what it waits at."""

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty
from typing import Any

import pytest

import shmnd
from shmnd import ipc

Case = tuple[list[Any], Callable[[], Any]]
"""The objects, of which the first is closed; and the wait."""


def _of(made: Any, wait: Callable[[Any], Any], *others: Any) -> Case:
    return [made, *others], lambda: wait(made)


def _blocked() -> Case:
    pub = ipc.Publisher("t", "f8")
    sub = ipc.Subscriber("t", "f8", buffer=1, overflow="block")
    pub.wait_for_subscribers(1, 60)
    return _of(pub, lambda pub: [pub.send([1.0]) for _ in range(100)], sub)


def _full() -> Case:
    return _of(ipc.Queue(1), lambda q: [q.put(1) for _ in range(3)])


def _in_a_set(made: Any) -> Case:
    both = ipc.WaitSet(made)
    return [made, both], both.wait


CASES: dict[str, Callable[[], Case]] = {
    "receive": lambda: _of(ipc.Subscriber("t"), lambda sub: sub.receive()),
    "samples": lambda: _of(ipc.Subscriber("t"), list),
    "send": _blocked,
    "subscribers": lambda: _of(ipc.Publisher("t"), lambda pub: pub.wait_for_subscribers(1)),
    "listener": lambda: _of(ipc.Listener("e"), lambda listener: listener.wait()),
    "numbers": lambda: _of(ipc.Listener("e"), list),
    "key": lambda: _of(
        ipc.BlackboardReader("b"), lambda reader: reader.wait("x"), ipc.Blackboard("b", {"x": "f8"})
    ),
    "writer": lambda: _of(ipc.BlackboardReader("b"), lambda reader: reader.wait("x")),
    "watch": lambda: _of(ipc.watch(), lambda watch: [watch.wait() for _ in range(99)]),
    "changes": lambda: _of(ipc.watch(), list),
    "request": lambda: _of(ipc.Server("s"), lambda server: server.receive()),
    "requests": lambda: _of(ipc.Server("s"), list),
    "serve": lambda: _of(ipc.Server("s"), lambda server: server.serve(print)),
    "call": lambda: _of(ipc.Client("s"), lambda client: client.call(1), ipc.Server("s")),
    "server": lambda: _of(ipc.Client("s"), lambda client: client.call(1)),
    "stream": lambda: _of(ipc.Client("s"), lambda client: list(client.stream(1)), ipc.Server("s")),
    "answer": lambda: _of(ipc.Client("s"), lambda client: client.send(1).result(), ipc.Server("s")),
    "get": lambda: _of(ipc.Queue(), lambda q: q.get()),
    "get by name": lambda: _of(ipc.Queue(name="q"), lambda q: q.get()),
    "put": _full,
    "wait set": lambda: _of(ipc.WaitSet(), lambda both: both.wait()),
    "a set's listener": lambda: _in_a_set(ipc.Listener("e")),
    "a set's subscriber": lambda: _in_a_set(ipc.Subscriber("t")),
    "a set's queue": lambda: _in_a_set(ipc.Queue()),
    "a set's server": lambda: _in_a_set(ipc.Server("s")),
}
SHORT = (
    "receive",
    "listener",
    "key",
    "request",
    "requests",
    "serve",
    "call",
    "stream",
    "answer",
    "get",
    "get by name",
    "put",
)
"""Waits that begin with a short sleep at a word, which no bell ends."""
ENDS = {"samples", "numbers", "changes", "requests", "serve"}
"""Waits that return: a close ends such a loop without an error."""
QUEUES = {"get", "get by name", "put"}
LONG = 10.0
"""Seconds, much longer than a wake-up takes, and shorter than a waiter sleeps that is not woken."""


@pytest.mark.parametrize("case", SHORT)
def test_a_close_ends_the_first_part_of_a_wait(case: str) -> None:
    """The sleep of this part lasts a tenth of a second where nothing ends it, and never less."""
    with shmnd.open_adapter():
        assert min(_seconds_of_wait(CASES[case]) for _ in range(10)) < 0.1


def _seconds_of_wait(case: Callable[[], Case]) -> float:
    """Return how long a call waits whose object is closed after a hundredth of a second."""
    made, wait = case()
    begun = threading.Event()
    took = 0.0

    def run() -> None:
        nonlocal took
        since = time.monotonic()
        begun.set()
        with contextlib.suppress(ipc.Closed, ValueError):
            wait()
        took = time.monotonic() - since

    waiter = threading.Thread(target=run)
    waiter.start()
    begun.wait(60)
    time.sleep(0.01)
    made[0].close()
    waiter.join(60)
    for each in made[1:]:
        each.close()
    return took


def _error_of_short_get(*, closes_own: bool) -> Exception | None:
    """Return what a get raises that begins before its queue, or another object of it, is closed."""
    with ipc.Queue(name="q") as queue, ipc.Queue(name="q") as other:
        found: list[Exception | None] = []
        begun = threading.Event()

        def run() -> None:
            begun.set()
            try:
                queue.get(timeout=0.09)
            except Exception as exc:
                found.append(exc)

        waiter = threading.Thread(target=run)
        waiter.start()
        begun.wait(60)
        time.sleep(0.01)
        (queue if closes_own else other).close()
        waiter.join(60)
        return found[0]


def test_a_short_get_of_a_queue_that_is_closed_meanwhile_is_no_empty_queue() -> None:
    kinds = {type(_error_of_short_get(closes_own=True)) for _ in range(10)}
    assert ValueError in kinds, kinds


def test_the_close_of_another_object_of_a_queue_ends_no_get() -> None:
    assert isinstance(_error_of_short_get(closes_own=False), Empty)


@pytest.mark.parametrize("case", CASES)
def test_a_close_ends_a_wait(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmnd.runtime.pending.LONGEST_SLEEP", 60.0)
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(wait())
        except Exception as exc:
            found.append(exc)

    with shmnd.open_adapter():  # its engine outlives the object that is closed
        made, wait = CASES[case]()
        waiter = threading.Thread(target=run)
        waiter.start()
        time.sleep(0.3)  # it sleeps for long by now
        begun = time.monotonic()
        made[0].close()
        waiter.join(LONG)
        took = time.monotonic() - begun
        for each in made:
            each.close()
        waiter.join(60)
    if case in ENDS:
        assert not isinstance(found[0], Exception)
    else:
        assert isinstance(found[0], ValueError if case in QUEUES else ipc.Closed)
        assert "closed" in str(found[0])
    assert took < LONG
